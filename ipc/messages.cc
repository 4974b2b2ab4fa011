// messages.cc: encoding and decoding of the messages between a process and its daemon. The functions
// fields() name what each message consists of; writer and reader both follow them (base/codec.h). A
// decoder reads all fields first and asks once whether all was there, then it checks the values (is_valid()).
// So no function that uses a decoded message has to check a range again.
#include "ipc/messages.h"

#include "base/codec.h"
#include "ipc/segment.h"
#include "ipc/wake_page.h"

namespace hdt::ipc {

namespace {

// The maximum length of a name in a question, in bytes.
constexpr size_t kMaxName = 256;

// The beginning of a Hello and a Welcome, in every version: what follows may be different in another one.
struct Opening {
  uint32_t magic = kSessionMagic;
  uint32_t version = kSessionVersion;
};

void fields(auto& c, Is<Opening> auto& m) { c.number(m.magic, m.version); }

}  // namespace

void fields(auto& c, Is<Hello> auto& m) { c.text(m.software, kMaxText); }

void fields(auto& c, Is<Welcome> auto& m) {
  c.text(m.software, kMaxText);
  c.text(m.node, kMaxText);
  c.number(m.host_pid, m.engines, m.restart_ms);
}

// `rendezvous` and `group_class` go into log lines and tables. `place` is only repeated to the ranks of the
// job. It is cut, as it comes from users: no message is refused for its length.
void fields(auto& c, Is<JoinRequest> auto& m) {
  c.number(m.request);
  c.bytes(m.key);
  c.number(m.meeting, m.host);
  c.name(m.rendezvous, kMaxPlaceBytes);
  c.cut_string(m.place, kMaxPlaceBytes);
  c.number(m.process_age_ms, m.ranks, m.rank);
  c.name(m.group_class, kMaxClassBytes);
  c.number(m.timeout_ms, m.code);
  c.text(m.text, kMaxText);
}

void fields(auto& c, Is<AdoptRequest> auto& m) { c.number(m.handle, m.engine, m.local_index); }

void fields(auto& c, Is<Joined> auto& m) {
  c.number(m.request, m.code);
  c.text(m.text, kMaxText);
  c.number(m.handle, m.engine, m.local_index);
  c.bytes(m.secret);
}

void fields(auto& c, Is<GroupNotice> auto& m) {
  c.number(m.handle, m.code, m.rank);
  c.text(m.text, kMaxText);
}

void fields(auto& c, Is<MemoryRequest> auto& m) { c.number(m.request, m.handle, m.memory); }

void fields(auto& c, Is<MemoryAnswer> auto& m) {
  c.number(m.request, m.code);
  c.text(m.text, kMaxText);
  c.number(m.memory);
}

void fields(auto& c, Is<ExplainRequest> auto& m) {
  c.string(m.group, kMaxName);
  c.string(m.what, kMaxName);
  c.string(m.type, kMaxName);
  c.number(m.bytes, m.root);
}

void fields(auto& c, Is<Question> auto& m) {
  c.string(m.what, kMaxName);
  c.string(m.about, kMaxText);
}

void fields(auto& c, Is<Text> auto& m) {
  c.number(m.code);
  c.text(m.text, kMaxText);
}

namespace {

// Whether the values are within their ranges. Most messages have none to check.
bool is_valid(const auto&) { return true; }
// `engines` bounds the number of eventfds, which the caller compares with the descriptors that have come.
bool is_valid(const Welcome& m) { return m.engines > 0 && m.engines <= kMaxEngines && m.restart_ms >= 0; }
bool is_valid(const JoinRequest& m) {
  return m.ranks > 0 && m.ranks <= kMaxRanks && m.rank < m.ranks && m.timeout_ms > 0 &&
         m.process_age_ms >= 0 && m.meeting <= Meeting::kAgain && m.host <= Hosting::kListenOnNics &&
         is_code(m.code);
}
// The limits are those of any daemon and any group; Restarts::adopt() compares with its own.
bool is_valid(const AdoptRequest& m) { return m.engine < kMaxEngines && m.local_index < kMaxLocalRanks; }
bool is_valid(const Joined& m) { return m.engine < kMaxEngines; }
// A code goes to all ranks of the group as it is, so it must be one of ours. The rank is not checked here:
// the group's own size bounds it.
bool is_valid(const GroupNotice& m) { return is_code(m.code); }
bool is_valid(const Text& m) { return is_code(m.code); }

using Bytes = std::span<const std::byte>;

// The failure of every decoder.
Status malformed(const char* what) {
  return {Code::kInvalidArgument, std::string("malformed ") + what + " message"};
}

// Every message begins with its kind.
std::vector<std::byte> write_message(Kind kind, const auto&... parts) {
  Writer writer;
  writer.number(kind);
  (fields(writer, parts), ...);
  return writer.take();
}

// Skips the kind, which kind_of() has read.
Reader open(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  reader.get<Kind>();
  return reader;
}

// Reads what is left; `name` is for the error.
template <typename Message>
Result<Message> read_message(Reader reader, const char* name) {
  Message message;
  fields(reader, message);
  if (!reader.complete() || !is_valid(message)) return malformed(name);
  return message;
}

// The same for a message with an Opening.
template <typename Message>
Result<Message> read_opened(Reader reader, const char* name) {
  Opening theirs;
  fields(reader, theirs);
  if (theirs.magic != kSessionMagic) return malformed(name);
  if (theirs.version != kSessionVersion) {
    return Status(Code::kVersion, "the other side speaks session protocol " + std::to_string(theirs.version) +
                                      ", this one " + std::to_string(kSessionVersion) +
                                      ": use libhdt and hdtcommd of the same release");
  }
  return read_message<Message>(reader, name);
}

}  // namespace

std::vector<std::byte> encode(const Hello& m) { return write_message(Kind::kHello, Opening{}, m); }
std::vector<std::byte> encode(const Welcome& m) { return write_message(Kind::kWelcome, Opening{}, m); }
std::vector<std::byte> encode(const JoinRequest& m) { return write_message(Kind::kJoin, m); }
std::vector<std::byte> encode(const AdoptRequest& m) { return write_message(Kind::kAdopt, m); }
std::vector<std::byte> encode(const Joined& m) { return write_message(Kind::kJoined, m); }
std::vector<std::byte> encode(Kind kind, const GroupNotice& m) { return write_message(kind, m); }
std::vector<std::byte> encode(Kind kind, const MemoryRequest& m) { return write_message(kind, m); }
std::vector<std::byte> encode(const MemoryAnswer& m) { return write_message(Kind::kMemory, m); }
std::vector<std::byte> encode(const ExplainRequest& m) { return write_message(Kind::kExplain, m); }
std::vector<std::byte> encode(const Question& m) { return write_message(Kind::kAsk, m); }
std::vector<std::byte> encode_text(Kind kind, Code code, const std::string& text) {
  return write_message(kind, Text{code, text});
}
std::vector<std::byte> encode_empty(Kind kind) { return write_message(kind); }

// Kinds have no gaps, so a range is enough.
Result<Kind> kind_of(std::span<const std::byte> bytes) {
  const auto kind = Reader(bytes).get<Kind>();
  if (kind < Kind::kHello || kind > Kind::kNotAdopted) return malformed("session");
  return kind;
}

Result<Hello> decode_hello(Bytes bytes) { return read_opened<Hello>(open(bytes), "hello"); }
Result<Welcome> decode_welcome(Bytes bytes) { return read_opened<Welcome>(open(bytes), "welcome"); }
Result<JoinRequest> decode_join(Bytes bytes) { return read_message<JoinRequest>(open(bytes), "join"); }
Result<AdoptRequest> decode_adopt(Bytes bytes) { return read_message<AdoptRequest>(open(bytes), "adopt"); }
Result<Joined> decode_joined(Bytes bytes) { return read_message<Joined>(open(bytes), "joined"); }
Result<GroupNotice> decode_notice(Bytes bytes) { return read_message<GroupNotice>(open(bytes), "group"); }
Result<MemoryRequest> decode_memory_request(Bytes bytes) {
  return read_message<MemoryRequest>(open(bytes), "memory");
}
Result<MemoryAnswer> decode_memory_answer(Bytes bytes) {
  return read_message<MemoryAnswer>(open(bytes), "memory");
}
Result<ExplainRequest> decode_explain(Bytes bytes) {
  return read_message<ExplainRequest>(open(bytes), "explain");
}
Result<Question> decode_question(Bytes bytes) { return read_message<Question>(open(bytes), "question"); }
Result<Text> decode_text(Bytes bytes) { return read_message<Text>(open(bytes), "text"); }

}  // namespace hdt::ipc
