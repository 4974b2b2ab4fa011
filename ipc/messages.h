// messages.h: the protocol between a process and its daemon, on an AF_UNIX SOCK_SEQPACKET socket. Every
// message begins with its kind, and replies carry the number of the request. The daemon treats every
// field as foreign.
//
// A session begins with kHello of the process, which the daemon answers with kWelcome or kRefused. After
// that the process sends requests and notices in any order, and the daemon answers each request once.
// Strings in answers are cut at kMaxText bytes by the encoder. Descriptors travel beside the bytes
// (base/seqpacket.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::ipc {

inline constexpr uint32_t kSessionMagic = 0x48445453;  // "HDTS"
// Counted up with every change of a message. Both sides must have the same: there is no negotiation.
inline constexpr uint32_t kSessionVersion = 10;
// Limits, in bytes: of a text, and of a group's key.
inline constexpr size_t kMaxText = 4096;
inline constexpr size_t kKeyBytes = 32;
// The maximum length of the addresses where a group is made, separated by commas.
inline constexpr size_t kMaxPlaceBytes = 512;
// The maximum of memories that one session shares.
inline constexpr uint32_t kMaxMemories = 4096;
using GroupKey = std::array<std::byte, kKeyBytes>;

// The sender, what the message asks or says, and what it carries.
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

// The first message of the process.
struct Hello {
  // Name and version of the process's library, for logs.
  std::string software;
};

// The daemon's answer to Hello.
struct Welcome {
  // Name and version of the daemon, for logs.
  std::string software;
  // The node's name.
  std::string node;
  // The process in which an embedded daemon lives; 0: the daemon is hdtcommd.
  uint32_t host_pid = 0;
  // The number of engine threads, and so of eventfds that come with the message: 1 to kMaxEngines.
  uint32_t engines = 0;
  // How long the process waits for a successor if the daemon ends without a message. 0: there will be
  // none.
  int64_t restart_ms = 0;
};

// From a process to a daemon that was started again: "This is a group of your predecessor, in which I am
// a rank." The segment's descriptor comes with it.
struct AdoptRequest {
  // As the predecessor gave it; the process goes on to use it.
  uint32_t handle = 0;
  // The engine thread that had the group. Links are made between engines of one index, so it must stay.
  uint32_t engine = 0;
  uint32_t local_index = 0;
};

// How the key of a group was made, and so which processes can know it.
enum class Meeting : uint8_t {
  // The key is random, or made from something that only the job has.
  kSecret = 0,
  // The key is made from an address that everybody can guess. So the daemon adds the process's user to
  // it.
  kAddress = 1,
  // As kSecret, but the same processes may use the key again after a failure (hdtCommShrink).
  kAgain = 2,
};
// The part of rank 0's daemon at the group's meeting place.
enum class Hosting : uint8_t {
  kNone = 0,
  // It listens at `rendezvous`. For rank 0 with HDT_RENDEZVOUS, MASTER_ADDR or srun's first node.
  kListen = 1,
  // As kListen, and at the same port on its NICs as well: here the name is a loopback address.
  kListenOnNics = 2,
};

// One rank asks to join a group. The answer is a Joined, when all ranks have joined or one cannot. With
// another code than kSuccess the rank says that it cannot take part, and why: no group is made then, and all
// who wait for it, or come later, get that reason.
struct JoinRequest {
  // Drawn by the process; the answer carries it.
  uint32_t request = 0;
  // Ranks with the same key make one group.
  GroupKey key{};
  Meeting meeting = Meeting::kSecret;
  Hosting host = Hosting::kNone;
  // "address:port" of the coordinating daemon, or several of them, separated by commas. A node id and
  // '@' in front say which daemon is meant.
  std::string rendezvous;
  // The same in the user's words, for messages: "MASTER_ADDR=localhost, MASTER_PORT=29500". "": not at
  // an address.
  std::string place;
  // How long the process has existed. A process that is younger than a failed attempt belongs to the
  // job's next run, and is not refused for that failure.
  int64_t process_age_ms = 0;
  // Size of the group, 1 to kMaxRanks, and this rank's number in it.
  uint32_t ranks = 0;
  uint32_t rank = 0;
  // 1 to kMaxClassBytes bytes; a section [class.NAME] of the daemon's configuration.
  std::string group_class;
  // More than 0. The daemon answers with kTimeout when it is over.
  int64_t timeout_ms = 0;
  Code code = Code::kSuccess;
  std::string text = {};
};

// The answer to a JoinRequest. On success a descriptor of the segment comes with it.
struct Joined {
  uint32_t request = 0;
  // kInProgress: this daemon ends, and its successor is to be asked.
  Code code = Code::kSuccess;
  std::string text;
  // Names this rank's seat in messages of this session. The daemon reuses it after the seat is left.
  uint32_t handle = 0;
  // The engine thread that has the group.
  uint32_t engine = 0;
  uint32_t local_index = 0;
  // Drawn by the coordinator: only members know it. The keys of later groups are made from it.
  GroupKey secret{};
};

// kShare, kUnshare, kOpen: about memory of hdtMemAlloc.
struct MemoryRequest {
  // The answer carries it. Not used by kUnshare, which is not answered.
  uint32_t request = 0;
  // kShare, kOpen: the group in which the memory is used.
  uint32_t handle = 0;
  // The memory's number, which the daemon draws at random for one group. kShare: 0, or the number that a
  // predecessor has given it.
  uint64_t memory = 0;
};

// Asks which algorithm a call would take, and why. Answered by kExplanationIs.
struct ExplainRequest {
  // The group's name as kStatusIs gives it, or its class.
  std::string group;
  // Names as collectives/types.h has them: "allreduce" and "float32".
  std::string what;
  std::string type;
  // The bytes of `count` elements.
  uint64_t bytes = 0;
  int32_t root = 0;
};

// A question or an order of an operator, beyond status and explain. Answered by kAnswerIs.
struct Question {
  // "backends", "link", "class", "why", "trace", "doctor".
  std::string what;
  // link: the name of the other node. class: its name and settings, one in a line: "dp", "weight=3".
  // why: a group. doctor: addresses of daemons.
  std::string about;
};

// The answer to kShare and kOpen. For kOpen a descriptor of the memory comes with it.
struct MemoryAnswer {
  uint32_t request = 0;
  Code code = Code::kSuccess;
  std::string text;
  // The memory's number; never 0 on success.
  uint64_t memory = 0;
};

// kLeave, kFail, kDeadline of a process; kNotAdopted of the daemon. Not answered.
struct GroupNotice {
  // The seat of the sender in the group.
  uint32_t handle = 0;
  // kFail, kNotAdopted: why. kSuccess in kLeave.
  Code code = Code::kSuccess;
  // The rank that the failure is about; -1: none.
  int32_t rank = -1;
  std::string text;
};

// Encoders: the bytes of each message, with its kind in front. They cannot fail.
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

// Decoders. Each fails with kInvalidArgument and a text that names the message, if bytes are missing or
// left over, or if a field is out of its range. A Hello or Welcome of another version gives kVersion.
// All but kind_of() expect that kind_of() has found their kind, and do not look at it.
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
// kRefused, kRendezvousAt, kExplanationIs, kAnswerIs: a code and a text, where the text is the answer
// itself or says why there is none.
struct Text {
  Code code = Code::kSuccess;
  std::string text;
};
Result<Text> decode_text(std::span<const std::byte> bytes);

}  // namespace hdt::ipc
