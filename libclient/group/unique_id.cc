// unique_id.cc: see unique_id.h.
#include "libclient/group/unique_id.h"

#include <cstring>
#include <span>

#include "base/codec.h"
#include "libclient/launch/job_meeting.h"

namespace hdt::client {

void fields(auto& c, Is<IdContents> auto& id) {
  c.number(id.magic);
  c.bytes(id.seed);
  c.string(id.rendezvous, sizeof(hdtUniqueId_t::internal));
}

Result<hdtUniqueId_t> pack_id(IdContents contents) {
  hdtUniqueId_t id{};
  std::string& rendezvous = contents.rendezvous;
  constexpr size_t kRoom = sizeof id.internal - sizeof kIdMagic - kSeedBytes - sizeof(uint32_t);
  while (rendezvous.size() > kRoom && rendezvous.rfind(',') != std::string::npos)
    rendezvous.resize(rendezvous.rfind(','));
  if (rendezvous.size() > kRoom)
    return Status(Code::kInternal, "the daemon's address '" + rendezvous + "' is too long for an id");
  Writer writer;
  fields(writer, contents);
  std::memcpy(id.internal, writer.written().data(), writer.written().size());
  return id;
}

// The bytes behind the contents are zero, and are not looked at.
Result<IdContents> unpack_id(const hdtUniqueId_t& id) {
  Reader reader(std::as_bytes(std::span(id.internal)));
  IdContents contents;
  fields(reader, contents);
  if (reader.failed() || contents.magic != kIdMagic || contents.rendezvous.empty()) {
    return Status(Code::kInvalidArgument, "the unique id was not made by hdtGetUniqueId");
  }
  return contents;
}

namespace {
std::string text_of(const std::array<std::byte, kSeedBytes>& seed) {
  return {reinterpret_cast<const char*>(seed.data()), seed.size()};
}
}  // namespace

// A derived id reveals neither the base nor the other ids: the hash cannot be undone.
Result<hdtUniqueId_t> derive_id(const hdtUniqueId_t& base, uint64_t number) {
  auto contents = unpack_id(base);
  if (!contents.is_ok()) return contents.status();
  const auto hash = key_of("derived " + std::to_string(number) + " " + text_of(contents.value().seed));
  if (!hash.is_ok()) return hash.status();
  static_assert(sizeof(ipc::GroupKey) >= kSeedBytes);
  std::memcpy(contents.value().seed.data(), hash.value().data(), kSeedBytes);
  return pack_id(contents.take());
}

// The hash hides the seed: the key travels to daemons, the seed does not.
Result<ipc::GroupKey> key_of_id(const IdContents& contents) { return key_of("id " + text_of(contents.seed)); }

}  // namespace hdt::client
