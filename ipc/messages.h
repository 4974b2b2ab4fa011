// messages.h: what a process and its daemon say on their AF_UNIX SOCK_SEQPACKET socket. Every message starts
// with its kind; replies carry the request's number. The daemon treats every field as foreign.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::session {

inline constexpr uint32_t kSessionMagic = 0x48445453;  // "HDTS"
inline constexpr uint32_t kSessionVersion = 9;
inline constexpr size_t kMaxText = 4096;
inline constexpr size_t kKeyBytes = 32;
inline constexpr size_t kMaxPlaceBytes = 512;   // addresses where a group is made, by commas
inline constexpr uint32_t kMaxMemories = 4096;  // shared by one session
using GroupKey = std::array<std::byte, kKeyBytes>;

enum class Kind : uint8_t {
  kHello = 1,     // process: magic, version, software version
  kWelcome,       // daemon: version, node name, embedded host pid, engines; fds: page, one eventfd per engine
  kRefused,       // daemon: why the session ends (code, text)
  kRendezvous,    // process: where may others meet me? (for hdtGetUniqueId)
  kRendezvousAt,  // daemon: address
  kJoin,          // process: JoinRequest
  kJoined,        // daemon: request, code, text; on success handle, engine, local index; fd: segment
  kLeave,         // process: handle
  kFail,          // process: handle, code, rank, text: fail the group on all nodes
  kDeadline,      // process: handle, text: find out why and fail the group
  kStatus,        // process: describe yourself
  kStatusIs,      // daemon: fd of a memfd with JSON
  kShare,    // process: request, handle; fd: memory that others of this group may map. Answered by kMemory
  kUnshare,  // process: memory's number; not answered
  kOpen,     // process: request, handle, memory's number: map what another rank of this group shares
  kMemory,   // daemon: request, code, text, memory's number; fd where kOpen succeeded
  kExplain,  // process: ExplainRequest: which algorithm would this call take, and why?
  kExplanationIs,  // daemon: code, text; fd of a memfd with JSON on success
  kAsk,            // process: Question
  kAnswerIs,       // daemon: code, text; fd of a memfd with JSON on success
  kAdopt,  // process, to a daemon that was started again: AdoptRequest; fd: segment. Answered only if refused
  kNotAdopted,  // daemon: handle, code, text
};

struct Hello {
  std::string software;
};

struct Welcome {
  std::string software;
  std::string node;
  uint32_t host_pid = 0;  // of the process an embedded daemon lives in; 0: hdtcommd
  uint32_t engines = 0;
  int64_t restart_ms = 0;  // so long the process waits for a successor; 0: there is none
};

// "This is a group of your predecessor, in which I am a rank."
struct AdoptRequest {
  uint32_t handle = 0;  // as the predecessor gave it
  uint32_t engine = 0;
  uint32_t local_index = 0;
};

// How the key of a group came about, and so who can know it.
enum class Meeting : uint8_t {
  kSecret = 0,  // the key is random, or made from something that only the job has
  // The key is made from an address that everybody can guess, so the daemon adds the process's user to it.
  kAddress = 1,
  kAgain = 2,  // as kSecret, but the same processes may use the key again after a failure (hdtCommShrink)
};
// What the daemon of rank 0 does at the group's meeting place.
enum class Hosting : uint8_t {
  kNone = 0,
  kListen = 1,        // it listens at `rendezvous` (rank 0 with HDT_RENDEZVOUS, MASTER_ADDR, ...)
  kListenOnNics = 2,  // as kListen, and at the same port on its NICs: here the name is a loopback address
};

struct JoinRequest {
  uint32_t request = 0;
  GroupKey key{};
  Meeting meeting = Meeting::kSecret;
  Hosting host = Hosting::kNone;
  // "address:port" of the coordinating daemon, or several, by commas. A node id and '@' in front say which
  // daemon.
  std::string rendezvous;
  std::string place;  // the same in the user's words, for messages: "MASTER_ADDR=localhost port 29501"
  int64_t process_age_ms = 0;  // how long the process has existed
  uint32_t ranks = 0;
  uint32_t rank = 0;
  std::string group_class;
  int64_t timeout_ms = 0;
};

struct Joined {
  uint32_t request = 0;
  Code code = Code::kSuccess;
  std::string text;
  uint32_t handle = 0;
  uint32_t engine = 0;
  uint32_t local_index = 0;
  GroupKey secret{};  // drawn by the coordinator: only members know it. Keys of later groups are made from it
};

struct MemoryRequest {  // kShare, kUnshare, kOpen
  uint32_t request = 0;
  uint32_t handle = 0;  // kShare, kOpen: of the group that it is used in
  // kUnshare, kOpen; kShare: the number that a predecessor gave it, 0: none yet. The daemon draws numbers at
  // random.
  uint64_t memory = 0;
};

struct ExplainRequest {
  std::string group;   // its id as kStatusIs gives it, or its class
  std::string what;    // "allreduce"
  std::string type;    // "float32"
  uint64_t bytes = 0;  // of `count` elements
  int32_t root = 0;
};

// What an operator asks the daemon or tells it, beyond status and explain.
struct Question {
  std::string what;  // "backends", "link", "class", "why", "trace", "doctor"
  // link: the name of the other node; class: its name and settings, by lines: "dp", "weight=3"; why: a group;
  // doctor: addresses of daemons
  std::string about;
};

struct MemoryAnswer {
  uint32_t request = 0;
  Code code = Code::kSuccess;
  std::string text;
  uint64_t memory = 0;  // never 0 on success
};

struct GroupNotice {  // kLeave, kFail, kDeadline, kNotAdopted
  uint32_t handle = 0;
  Code code = Code::kSuccess;
  int32_t rank = -1;
  std::string text;
};

std::vector<std::byte> encode(const Hello& message);
std::vector<std::byte> encode(const Welcome& message);
std::vector<std::byte> encode(const JoinRequest& message);
std::vector<std::byte> encode(const AdoptRequest& message);
std::vector<std::byte> encode(const Joined& message);
std::vector<std::byte> encode(Kind kind, const GroupNotice& message);
std::vector<std::byte> encode(Kind kind, const MemoryRequest& message);
std::vector<std::byte> encode(const MemoryAnswer& message);
std::vector<std::byte> encode(const ExplainRequest& message);
std::vector<std::byte> encode(const Question& message);
// kRefused, kRendezvousAt, kExplanationIs, kAnswerIs
std::vector<std::byte> encode_text(Kind kind, Code code, const std::string& text);
std::vector<std::byte> encode_empty(Kind kind);  // kRendezvous, kStatus, ...

// Each fails with kInvalidArgument (kVersion for a Hello or Welcome of another version) and says why.
Result<Kind> kind_of(std::span<const std::byte> bytes);
Result<Hello> decode_hello(std::span<const std::byte> bytes);
Result<Welcome> decode_welcome(std::span<const std::byte> bytes);
Result<JoinRequest> decode_join(std::span<const std::byte> bytes);
Result<AdoptRequest> decode_adopt(std::span<const std::byte> bytes);
Result<Joined> decode_joined(std::span<const std::byte> bytes);
Result<GroupNotice> decode_notice(std::span<const std::byte> bytes);
Result<MemoryRequest> decode_memory_request(std::span<const std::byte> bytes);
Result<MemoryAnswer> decode_memory_answer(std::span<const std::byte> bytes);
Result<ExplainRequest> decode_explain(std::span<const std::byte> bytes);
Result<Question> decode_question(std::span<const std::byte> bytes);
struct Text {  // kRefused, kRendezvousAt, kExplanationIs, kAnswerIs
  Code code = Code::kSuccess;
  std::string text;
};
Result<Text> decode_text(std::span<const std::byte> bytes);

}  // namespace hdt::session
