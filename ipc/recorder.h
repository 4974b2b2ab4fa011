// recorder.h: the last operations of a rank in a group, in the group's shared memory: what was called,
// when it was entered, when all others were there (started), how far it has come, when and how it ended.
// The rank writes it without a lock, a system call or a wait. The daemon reads it at any time, even if
// the rank is dead: for diagnosis (daemon/diagnosis) and traces.
//
// There is one writer, as the communicator's lock is held. When the ring has gone round, a later
// operation takes a record over. The record's version is 0 meanwhile, so a reader notices when it has
// copied halves of two operations. Later changes to a record (started, progress, ended) are single words
// that each stand for themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/ticks.h"
#include "ipc/call.h"

namespace hdt::ipc {

// Records of a rank in a group. A power of two, so that the place is a mask.
inline constexpr uint64_t kRecords = 1024;

// The kind of a record: a collective has the value of its enumerator, and point to point follows.
enum class Recorded : uint8_t { kSend = collectives::kCollectiveCount, kReceive };
// The peer of a receive that takes a message from any rank, until one has come.
inline constexpr uint32_t kAnyRank = UINT32_MAX;
inline constexpr int kRecordedCount = collectives::kCollectiveCount + 2;

// One operation, in one cache line.
struct alignas(64) Record {
  // The number of the operation + 1; 0: being written.
  std::atomic<uint64_t> version;
  // Bits 0-7: kind. Bits 8-15: type. Bits 16-23: reduction. Bits 24-31: part. Bits 32-63:
  // root or peer.
  std::atomic<uint64_t> what;
  // The number of the call in the group, or of the message between the two ranks.
  std::atomic<uint64_t> sequence;
  // Elements; bytes for messages.
  std::atomic<uint64_t> count;
  // Times in ticks (base/ticks.h). 0: not yet.
  std::atomic<uint64_t> entered;
  std::atomic<uint64_t> started;
  std::atomic<uint64_t> ended;
  // Bits 0-7: the code, once ended. Bits 8-63: bytes moved, of messages.
  std::atomic<uint64_t> result;
};
static_assert(sizeof(Record) == 64);

// The records of one rank; one in the segment for each local rank. Zero bytes at first.
struct Recording {
  // Operations so far. Operation n is in records[n % kRecords].
  alignas(64) std::atomic<uint64_t> begun;
  Record records[kRecords];
};

// A record as it was when somebody looked, checked and in words. Times are those of now_ns(); 0: not
// yet.
struct Operation {
  // "allreduce", "send".
  std::string kind;
  // "allreduce of 1024 float32, sum"; "send of 40 bytes to rank 3".
  std::string text;
  uint64_t sequence = 0;
  // Size of the call's `count` elements, or of the message.
  uint64_t bytes = 0;
  // The other rank of a message, or kAnyRank; -1: the operation is a collective.
  int64_t peer = -1;
  // Bytes of a message that were moved so far.
  uint64_t moved = 0;
  int64_t entered_ns = 0, started_ns = 0, ended_ns = 0;
  Code code = Code::kSuccess;
  bool is_message() const { return peer >= 0; }
};

// The writing side. It owns nothing, is as cheap as a pointer, and must be used under the communicator's
// lock.
class Recorder {
 public:
  explicit Recorder(Recording& recording) : recording_(&recording) {}

  // Records that an operation is entered now. Returns the operation's number, by which the other
  // functions find its record. The ring may have gone round by then: they do nothing in that case.
  uint64_t begin(const Call& call, uint64_t sequence) const {
    return begin(static_cast<uint64_t>(call.what) | static_cast<uint64_t>(call.type) << 8 |
                     static_cast<uint64_t>(call.op) << 16 | uint64_t{call.part} << 24 |
                     uint64_t{static_cast<uint32_t>(call.root)} << 32,
                 sequence, call.count);
  }
  uint64_t begin(Recorded kind, uint32_t peer, uint64_t message, uint64_t bytes) const {
    constexpr auto kBytes = static_cast<uint64_t>(collectives::DataType::kInt8);
    return begin(static_cast<uint64_t>(kind) | kBytes << 8 | uint64_t{peer} << 32, message, bytes);
  }
  // The time at which begin() recorded the operation, in ticks. For its latest operations only.
  uint64_t entered_at(uint64_t number) const {
    return recording_->records[number % kRecords].entered.load(std::memory_order_relaxed);
  }
  // All ranks have entered the operation.
  void start(uint64_t number) const {
    if (Record* record = find(number)) record->started.store(ticks(), std::memory_order_relaxed);
  }
  // `bytes` of the message were moved so far. The first call also marks the start.
  void move(uint64_t number, uint64_t bytes) const {
    Record* record = find(number);
    if (record == nullptr) return;
    if (record->result.load(std::memory_order_relaxed) == 0) start(number);
    record->result.store(bytes << 8, std::memory_order_relaxed);
  }
  // The operation has ended, now or `at` that tick.
  void end(uint64_t number, Code code = Code::kSuccess) const { end(number, code, ticks()); }
  void end(uint64_t number, Code code, uint64_t at) const {
    Record* record = find(number);
    if (record == nullptr) return;
    // The code first: a reader that sees `ended` (acquire) sees the code, too.
    if (code != Code::kSuccess) {
      const uint64_t moved = record->result.load(std::memory_order_relaxed);
      record->result.store(moved | static_cast<uint64_t>(code), std::memory_order_relaxed);
    }
    record->ended.store(at, std::memory_order_release);
  }

 private:
  uint64_t begin(uint64_t what, uint64_t sequence, uint64_t count) const {
    const uint64_t number = recording_->begun.load(std::memory_order_relaxed);
    Record& record = recording_->records[number % kRecords];
    // 1. Invalidate the earlier operation's record.
    // 2. Write the words, each with release: a reader that sees one of them sees the version's 0, too.
    // 3. Publish the record under its number.
    record.version.store(0, std::memory_order_relaxed);
    record.what.store(what, std::memory_order_release);
    record.sequence.store(sequence, std::memory_order_release);
    record.count.store(count, std::memory_order_release);
    record.entered.store(ticks(), std::memory_order_release);
    record.started.store(0, std::memory_order_release);
    record.ended.store(0, std::memory_order_release);
    record.result.store(0, std::memory_order_release);
    record.version.store(number + 1, std::memory_order_release);
    recording_->begun.store(number + 1, std::memory_order_release);
    return number;
  }
  // Null: the ring has gone round, and the record is another operation's.
  Record* find(uint64_t number) const {
    Record& record = recording_->records[number % kRecords];
    return record.version.load(std::memory_order_relaxed) == number + 1 ? &record : nullptr;
  }

  Recording* recording_;
};

// A record's words as they were at one moment, unchecked. Copies are taken quickly, on the engine's
// thread, and turned into operations elsewhere.
struct RecordCopy {
  uint64_t what, sequence, count, entered, started, ended, result;
};
// The records of a rank, oldest first. Those that are overwritten meanwhile are left out.
std::vector<RecordCopy> copy_records(const Recording& recording);
// Turns copies into operations. Copies that make no sense are left out. `scale` turns ticks into ns.
std::vector<Operation> read(const std::vector<RecordCopy>& records, const TickScale& scale);

}  // namespace hdt::ipc
