// recorder.cc: the reading side of the recorder, in the daemon. It never stops the rank: it copies a
// record between two looks at the record's version and drops the copy if the version has changed.
#include "ipc/recorder.h"

#include <algorithm>

#include "ipc/partition.h"

namespace hdt::ipc {

namespace {

// Nothing: another operation took the record over while it was copied.
std::optional<RecordCopy> copy(const Record& record, uint64_t number) {
  if (record.version.load(std::memory_order_acquire) != number + 1) return {};
  // Each word is loaded with acquire, and pairs with the release store of begin(). If any of them is of
  // the next operation, the version's 0 that was stored before it is visible too, so the second look at
  // the version below finds 0 or the next number.
  const RecordCopy copied{
      record.what.load(std::memory_order_acquire),    record.sequence.load(std::memory_order_acquire),
      record.count.load(std::memory_order_acquire),   record.entered.load(std::memory_order_acquire),
      record.started.load(std::memory_order_acquire), record.ended.load(std::memory_order_acquire),
      record.result.load(std::memory_order_acquire)};
  if (record.version.load(std::memory_order_relaxed) != number + 1) return {};
  return copied;
}

// Turns foreign words into an operation. Nothing: a value is out of its range. Ranks can write any
// words, so each is checked before it is used as an index or an enumerator.
std::optional<Operation> check(const RecordCopy& copied, const TickScale& scale) {
  const auto kind = static_cast<int>(copied.what & 0xff);
  const auto code = static_cast<int>(copied.result & 0xff);
  const auto peer = static_cast<uint32_t>(copied.what >> 32);
  Call call;
  call.type = static_cast<collectives::DataType>(copied.what >> 8 & 0xff);
  call.op = static_cast<collectives::ReduceOp>(copied.what >> 16 & 0xff);
  call.part = static_cast<uint8_t>(copied.what >> 24 & 0xff);
  call.count = copied.count;
  if (kind >= kRecordedCount || code >= kCodeCount) return {};
  Operation operation;
  operation.sequence = copied.sequence;
  // 1. The kind of the operation.
  if (kind >= collectives::kCollectiveCount) {
    const bool send = static_cast<Recorded>(kind) == Recorded::kSend;
    if (send && peer == kAnyRank) return {};
    operation.kind = send ? "send" : "recv";
    operation.bytes = copied.count;
    operation.peer = peer;
    operation.moved = copied.result >> 8;
    operation.text = operation.kind + " of " + std::to_string(copied.count) + " bytes " +
                     (send ? "to" : "from") +
                     (peer == kAnyRank ? " any rank" : " rank " + std::to_string(peer));
  } else {
    call.what = static_cast<collectives::Collective>(kind);
    call.root = static_cast<int32_t>(peer);
    if (!validate(call, kMaxRanks).empty()) return {};
    operation.kind = collectives::name_of(call.what);
    operation.bytes = call.count * collectives::type_size(call.type);
    operation.text = describe(call);
  }
  // 2. When. The scale may place a foreign time anywhere, so no later moment lies before the first one.
  operation.entered_ns = scale.ns_at(copied.entered);
  if (copied.ended != 0) operation.ended_ns = std::max(operation.entered_ns, scale.ns_at(copied.ended));
  if (copied.started != 0) operation.started_ns = std::max(operation.entered_ns, scale.ns_at(copied.started));
  // Short calls are recorded without a start: all ranks were there when the call ended.
  if (operation.started_ns == 0 && operation.ended_ns != 0 && code == 0)
    operation.started_ns = operation.ended_ns;
  operation.code = static_cast<Code>(code);
  return operation;
}

}  // namespace

std::vector<RecordCopy> copy_records(const Recording& recording) {
  // acquire pairs with the release store in begin(): all records below `begun` are complete, or taken
  // over by later operations.
  const uint64_t begun = recording.begun.load(std::memory_order_acquire);
  std::vector<RecordCopy> records;
  for (uint64_t number = begun > kRecords ? begun - kRecords : 0; number < begun; ++number) {
    if (const auto copied = copy(recording.records[number % kRecords], number)) records.push_back(*copied);
  }
  return records;
}

std::vector<Operation> read(const std::vector<RecordCopy>& records, const TickScale& scale) {
  std::vector<Operation> operations;
  for (const RecordCopy& record : records) {
    if (auto operation = check(record, scale)) operations.push_back(std::move(*operation));
  }
  return operations;
}

}  // namespace hdt::ipc
