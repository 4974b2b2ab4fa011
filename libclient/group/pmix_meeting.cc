// pmix_meeting.cc: see pmix_meeting.h.
#include "libclient/group/pmix_meeting.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/codec.h"
#include "base/contained.h"
#include "base/hmac.h"
#include "base/log.h"
#include "libclient/launch/pmix_exchange.h"

namespace hdt::client {

namespace {

// "JDTF" in memory, where an id has kIdMagic.
constexpr uint32_t kFailureMagic = 0x4654444a;

// Rank 0 publishes this in the place of an id.
struct Failure {
  uint32_t magic = kFailureMagic;
  Code code = Code::kSuccess;
  std::string text;
};

void fields(auto& c, Is<Failure> auto& m) {
  c.number(m.magic, m.code);
  c.text(m.text, ipc::kMaxText);
}

std::string name_of(uint64_t number) { return "hdt.group." + std::to_string(number); }

Status publish(uint64_t number, std::span<const uint8_t> value) {
  auto pmix = PmixExchange::instance();
  if (!pmix.is_ok()) return pmix.status();
  return pmix.value()->publish(name_of(number), value);
}

// The value may have any bytes: another program of the job may have published it.
Result<IdContents> read_value(std::span<const uint8_t> value) {
  Reader reader(std::as_bytes(value));
  Failure failure;
  fields(reader, failure);
  const auto code = static_cast<int>(failure.code);
  if (reader.complete() && failure.magic == kFailureMagic && code > 0 && code < kCodeCount)
    return Status(failure.code, "rank 0 could not publish the group's id: " + failure.text);
  hdtUniqueId_t id{};
  std::memcpy(id.internal, value.data(), std::min(value.size(), sizeof id.internal));
  return unpack_id(id);
}

}  // namespace

// The ranks meet at the daemon of this session, which need not be the one that hdtGetUniqueId finds.
Result<IdContents> PmixMeeting::make(Session& session) {
  IdContents contents;
  HDT_RETURN_IF_ERROR(random_bytes({reinterpret_cast<uint8_t*>(contents.seed.data()), contents.seed.size()}));
  auto address = session.rendezvous_address();
  if (!address.is_ok()) return address.status();
  contents.rendezvous = address.take();
  return contents;
}

Result<IdContents> PmixMeeting::id(Session& session, Job& job) {
  auto pmix = PmixExchange::instance();
  if (!pmix.is_ok()) {
    return Status(
        pmix.status().code(),
        "this job (" + job.source + ") has no HDT_RENDEZVOUS=host:port, and " + pmix.status().message());
  }
  if (!job.size) {
    const auto size = pmix.value()->job_size();
    if (!size.is_ok()) return size.status();
    job.size = size.value();
  }
  if (job.rank != 0) {
    if (contents_) return *contents_;
    const auto bytes = pmix.value()->fetch(0, name_of(number_), deadline_);
    if (!bytes.is_ok())
      return Status(bytes.status().code(),
                    "rank 0 did not publish the group's id: " + bytes.status().message());
    auto read = read_value(bytes.value());
    if (read.is_ok()) contents_ = read.value();
    return read;
  }
  if (!contents_) {
    auto made = make(session);
    if (!made.is_ok()) return made;
    contents_ = made.take();
  }
  if (!published_) {
    const auto packed = pack_id(*contents_);
    if (!packed.is_ok()) return packed.status();
    const auto* bytes = reinterpret_cast<const uint8_t*>(packed.value().internal);
    HDT_RETURN_IF_ERROR(publish(number_, {bytes, sizeof packed.value().internal}));
    published_ = true;
  }
  return *contents_;
}

void PmixMeeting::give_up(const Status& why) {
  if (std::exchange(published_, true)) return;
  (void)contained("the message that rank 0 has no id", [&] {
    Writer writer;
    const Failure failure{kFailureMagic, why.code(), why.message()};
    fields(writer, failure);
    const auto& bytes = writer.written();
    const Status published = publish(number_, {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    if (!published.is_ok()) HDT_LOG_WARN("the other ranks wait for this one's id: {}", published.message());
  });
}

}  // namespace hdt::client
