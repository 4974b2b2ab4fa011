// messages.cc: encoding and decoding of the messages between a process and its daemon. Encoder and
// decoder of a message name the same fields in the same order, as the bytes carry no names. A decoder
// reads all fields first and asks the reader once whether all was there (base/codec.h); then it checks
// the values. So no function that uses a decoded message has to check a range again.
#include "ipc/messages.h"

#include "base/codec.h"
#include "ipc/segment.h"
#include "ipc/wake_page.h"

namespace hdt::ipc {

namespace {

// The maximum length of a name in a question, in bytes.
constexpr size_t kMaxName = 256;

// The failure of every decoder.
Status malformed(const char* what) {
  return {Code::kInvalidArgument, std::string("malformed ") + what + " message"};
}

Status other_version(uint32_t theirs) {
  return {Code::kVersion, "the other side speaks session protocol " + std::to_string(theirs) + ", this one " +
                              std::to_string(kSessionVersion) +
                              ": use libhdt and hdtcommd of the same release"};
}

// Every message begins with its kind.
Writer start(Kind kind) {
  Writer writer;
  writer.put(kind);
  return writer;
}

// Skips the kind, which kind_of() has read.
Reader open(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  reader.get<Kind>();
  return reader;
}

}  // namespace

std::vector<std::byte> encode(const Hello& message) {
  return start(Kind::kHello).put(kSessionMagic).put(kSessionVersion).put_string(message.software).take();
}

std::vector<std::byte> encode(const Welcome& message) {
  return start(Kind::kWelcome)
      .put(kSessionMagic)
      .put(kSessionVersion)
      .put_string(message.software)
      .put_string(message.node)
      .put(message.host_pid)
      .put(message.engines)
      .put(message.restart_ms)
      .take();
}

std::vector<std::byte> encode(const JoinRequest& m) {
  return start(Kind::kJoin)
      .put(m.request)
      .put_bytes(m.key)
      .put(m.meeting)
      .put(m.host)
      .put_string(m.rendezvous)
      // Texts that come from users are cut, so that the decoder never refuses a message for their
      // length.
      .put_string(m.place.substr(0, kMaxPlaceBytes))
      .put(m.process_age_ms)
      .put(m.ranks)
      .put(m.rank)
      .put_string(m.group_class)
      .put(m.timeout_ms)
      .take();
}

std::vector<std::byte> encode(const AdoptRequest& m) {
  return start(Kind::kAdopt).put(m.handle).put(m.engine).put(m.local_index).take();
}

std::vector<std::byte> encode(const Joined& m) {
  return start(Kind::kJoined)
      .put(m.request)
      .put(m.code)
      .put_string(m.text.substr(0, kMaxText))
      .put(m.handle)
      .put(m.engine)
      .put(m.local_index)
      .put_bytes(m.secret)
      .take();
}

std::vector<std::byte> encode(Kind kind, const GroupNotice& m) {
  return start(kind).put(m.handle).put(m.code).put(m.rank).put_string(m.text.substr(0, kMaxText)).take();
}

std::vector<std::byte> encode(Kind kind, const MemoryRequest& m) {
  return start(kind).put(m.request).put(m.handle).put(m.memory).take();
}

std::vector<std::byte> encode(const MemoryAnswer& m) {
  return start(Kind::kMemory)
      .put(m.request)
      .put(m.code)
      .put_string(m.text.substr(0, kMaxText))
      .put(m.memory)
      .take();
}

std::vector<std::byte> encode(const ExplainRequest& m) {
  return start(Kind::kExplain)
      .put_string(m.group)
      .put_string(m.what)
      .put_string(m.type)
      .put(m.bytes)
      .put(m.root)
      .take();
}

std::vector<std::byte> encode(const Question& m) {
  return start(Kind::kAsk).put_string(m.what).put_string(m.about).take();
}

std::vector<std::byte> encode_text(Kind kind, Code code, const std::string& text) {
  return start(kind).put(code).put_string(text.substr(0, kMaxText)).take();
}

std::vector<std::byte> encode_empty(Kind kind) { return start(kind).take(); }

// Kinds have no gaps, so a range is enough.
Result<Kind> kind_of(std::span<const std::byte> bytes) {
  const auto kind = Reader(bytes).get<Kind>();
  if (kind < Kind::kHello || kind > Kind::kNotAdopted) return malformed("session");
  return kind;
}

// Magic and version are read first: what follows them may be different in another version.
Result<Hello> decode_hello(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  if (reader.get<uint32_t>() != kSessionMagic) return malformed("hello");
  if (const auto version = reader.get<uint32_t>(); version != kSessionVersion) return other_version(version);
  Hello message{reader.get_text(kMaxText)};
  if (!reader.complete()) return malformed("hello");
  return message;
}

Result<Welcome> decode_welcome(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  if (reader.get<uint32_t>() != kSessionMagic) return malformed("welcome");
  if (const auto version = reader.get<uint32_t>(); version != kSessionVersion) return other_version(version);
  Welcome message;
  message.software = reader.get_text(kMaxText);
  message.node = reader.get_text(kMaxText);
  message.host_pid = reader.get<uint32_t>();
  message.engines = reader.get<uint32_t>();
  message.restart_ms = reader.get<int64_t>();
  // `engines` bounds the number of eventfds, which the caller compares with the descriptors that have
  // come.
  if (!reader.complete() || message.engines == 0 || message.engines > kMaxEngines || message.restart_ms < 0)
    return malformed("welcome");
  return message;
}

// The names go into log lines and tables, so get_name() refuses control characters. `place` is only
// repeated to the ranks of the job.
Result<JoinRequest> decode_join(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  JoinRequest m;
  m.request = reader.get<uint32_t>();
  reader.get_bytes(m.key);
  m.meeting = reader.get<Meeting>();
  m.host = reader.get<Hosting>();
  m.rendezvous = reader.get_name(kMaxPlaceBytes);
  m.place = reader.get_string(kMaxPlaceBytes);
  m.process_age_ms = reader.get<int64_t>();
  m.ranks = reader.get<uint32_t>();
  m.rank = reader.get<uint32_t>();
  m.group_class = reader.get_name(kMaxClassBytes);
  m.timeout_ms = reader.get<int64_t>();
  if (!reader.complete() || m.ranks == 0 || m.ranks > kMaxRanks || m.rank >= m.ranks || m.timeout_ms <= 0 ||
      m.process_age_ms < 0 || m.meeting > Meeting::kAgain || m.host > Hosting::kListenOnNics) {
    return malformed("join");
  }
  return m;
}

// The limits are those of any daemon and any group; Restarts::adopt() compares with its own.
Result<AdoptRequest> decode_adopt(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  AdoptRequest m;
  m.handle = reader.get<uint32_t>();
  m.engine = reader.get<uint32_t>();
  m.local_index = reader.get<uint32_t>();
  if (!reader.complete() || m.engine >= kMaxEngines || m.local_index >= kMaxLocalRanks)
    return malformed("adopt");
  return m;
}

Result<Joined> decode_joined(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  Joined m;
  m.request = reader.get<uint32_t>();
  m.code = reader.get<Code>();
  m.text = reader.get_text(kMaxText);
  m.handle = reader.get<uint32_t>();
  m.engine = reader.get<uint32_t>();
  m.local_index = reader.get<uint32_t>();
  reader.get_bytes(m.secret);
  if (!reader.complete() || m.engine >= kMaxEngines) return malformed("joined");
  return m;
}

Result<MemoryRequest> decode_memory_request(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  MemoryRequest m;
  m.request = reader.get<uint32_t>();
  m.handle = reader.get<uint32_t>();
  m.memory = reader.get<uint64_t>();
  if (!reader.complete()) return malformed("memory");
  return m;
}

Result<MemoryAnswer> decode_memory_answer(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  MemoryAnswer m;
  m.request = reader.get<uint32_t>();
  m.code = reader.get<Code>();
  m.text = reader.get_text(kMaxText);
  m.memory = reader.get<uint64_t>();
  if (!reader.complete()) return malformed("memory");
  return m;
}

Result<ExplainRequest> decode_explain(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  ExplainRequest m;
  m.group = reader.get_string(kMaxName);
  m.what = reader.get_string(kMaxName);
  m.type = reader.get_string(kMaxName);
  m.bytes = reader.get<uint64_t>();
  m.root = reader.get<int32_t>();
  if (!reader.complete()) return malformed("explain");
  return m;
}

Result<Question> decode_question(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  Question m;
  m.what = reader.get_string(kMaxName);
  m.about = reader.get_string(kMaxText);
  if (!reader.complete()) return malformed("question");
  return m;
}

// A code goes to all ranks of the group as it is, so it must be one of ours. The rank is not checked
// here: the group's own size bounds it.
Result<GroupNotice> decode_notice(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  GroupNotice m;
  m.handle = reader.get<uint32_t>();
  m.code = reader.get<Code>();
  m.rank = reader.get<int32_t>();
  m.text = reader.get_text(kMaxText);
  const int code = static_cast<int>(m.code);
  if (!reader.complete() || code < 0 || code >= kCodeCount) return malformed("group");
  return m;
}

Result<Text> decode_text(std::span<const std::byte> bytes) {
  Reader reader = open(bytes);
  Text message;
  message.code = reader.get<Code>();
  message.text = reader.get_text(kMaxText);
  const int code = static_cast<int>(message.code);
  if (!reader.complete() || code < 0 || code >= kCodeCount) return malformed("text");
  return message;
}

}  // namespace hdt::ipc
