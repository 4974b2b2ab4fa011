// recorder.h: the last operations of a rank in a group, in the group's shared memory: what was called, when
// it was entered, when all others were there (started), how far it has come, when and how it ended. Written
// by the rank without a lock, a system call or a wait, read by the daemon at any time, also when the rank is
// dead.
//
// One writer (the communicator's lock is held). A record is taken over by a later operation when the ring has
// gone round; its version is 0 meanwhile, so that a reader can tell that it has copied halves of two. Later
// changes to a record (started, progress, ended) are single words that each stand for themselves.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/ticks.h"
#include "ipc/call.h"

namespace hdt::session {

inline constexpr uint64_t kRecords = 1024;  // a power of two

// Collectives by their own values, then these.
enum class Recorded : uint8_t { kSend = collectives::kCollectiveCount, kReceive };
inline constexpr int kRecordedCount = collectives::kCollectiveCount + 2;

struct alignas(64) Record {
  std::atomic<uint64_t> version;   // number of the operation + 1; 0: being written
  std::atomic<uint64_t> what;      // bits 0-7 kind, 8-15 type, 16-23 reduction, 32-63 root or peer
  std::atomic<uint64_t> sequence;  // of the call in the group, or of the message between the two ranks
  std::atomic<uint64_t> count;     // elements; of messages bytes
  std::atomic<uint64_t> entered;   // ticks
  std::atomic<uint64_t> started;   // ticks; 0: not yet
  std::atomic<uint64_t> ended;     // ticks; 0: not yet
  std::atomic<uint64_t> result;    // bits 0-7 code once ended, 8-63 bytes moved (of messages)
};
static_assert(sizeof(Record) == 64);

struct Recording {
  alignas(64) std::atomic<uint64_t> begun;  // operations so far
  Record records[kRecords];
};

// A record as it was when somebody looked, checked. Times are now_ns()'s; 0: not yet.
struct Operation {
  std::string kind;  // "allreduce", "send"
  std::string text;  // "allreduce of 1024 float32, sum"; "send of 40 bytes to rank 3"
  uint64_t sequence = 0;
  uint64_t bytes = 0;
  int64_t peer = -1;   // of a message
  uint64_t moved = 0;  // bytes of a message
  int64_t entered_ns = 0, started_ns = 0, ended_ns = 0;
  Code code = Code::kSuccess;
  bool is_message() const { return peer >= 0; }
};

class Recorder {
 public:
  explicit Recorder(Recording& recording) : recording_(&recording) {}

  // Returns the operation's number, for the rest.
  uint64_t begin(const Call& call, uint64_t sequence) const {
    return begin(static_cast<uint64_t>(call.what) | static_cast<uint64_t>(call.type) << 8 |
                     static_cast<uint64_t>(call.op) << 16 | uint64_t{static_cast<uint32_t>(call.root)} << 32,
                 sequence, call.count);
  }
  uint64_t begin(Recorded kind, uint32_t peer, uint64_t message, uint64_t bytes) const {
    constexpr auto kBytes = static_cast<uint64_t>(collectives::DataType::kInt8);
    return begin(static_cast<uint64_t>(kind) | kBytes << 8 | uint64_t{peer} << 32, message, bytes);
  }
  uint64_t entered_at(uint64_t number) const {
    return recording_->records[number % kRecords].entered.load(std::memory_order_relaxed);
  }
  void start(uint64_t number) const {
    if (Record* record = find(number)) record->started.store(ticks(), std::memory_order_relaxed);
  }
  void move(uint64_t number, uint64_t bytes) const {
    Record* record = find(number);
    if (record == nullptr) return;
    if (record->result.load(std::memory_order_relaxed) == 0) start(number);
    record->result.store(bytes << 8, std::memory_order_relaxed);
  }
  void end(uint64_t number, Code code = Code::kSuccess) const { end(number, code, ticks()); }
  void end(uint64_t number, Code code, uint64_t at) const {
    Record* record = find(number);
    if (record == nullptr) return;
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
    record.version.store(0, std::memory_order_relaxed);
    // Release, so that whoever sees one of these sees the version's 0 before it.
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
  // Null: the ring has gone round since.
  Record* find(uint64_t number) const {
    Record& record = recording_->records[number % kRecords];
    return record.version.load(std::memory_order_relaxed) == number + 1 ? &record : nullptr;
  }

  Recording* recording_;
};

// A record's words as they were at one moment, unchecked: quickly taken.
struct RecordCopy {
  uint64_t what, sequence, count, entered, started, ended, result;
};
// Oldest first; those that are overwritten meanwhile are left out.
std::vector<RecordCopy> copy_records(const Recording& recording);
// Those that make no sense are left out.
std::vector<Operation> read(const std::vector<RecordCopy>& records, const TickScale& scale);

}  // namespace hdt::session
