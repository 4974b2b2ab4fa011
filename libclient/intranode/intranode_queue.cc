// intranode_queue.cc: publishing, comparing, choosing a protocol, and doing the work of a call in a group of
// one node. See intranode_queue.h for the protocols and the stages.
//
// The order of memory: a rank writes its descriptor and payload, and then `sequence` with release.
// Others load `sequence` with acquire and then read the rest. `worked` and `finished` in the rank states
// are stored with release after the work, and loaded with acquire before its results are read, or before
// a descriptor's place is used again.
#include "libclient/intranode/intranode_queue.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "ipc/buffer_use.h"

namespace hdt::client {

using ipc::CallDescriptor;
using ipc::Exposure;
using ipc::kDescriptors;
using ipc::kEagerBytes;
using ipc::kInlineBytes;
using ipc::kPayloads;
using ipc::RankState;
using ipc::result_bytes;

namespace {

// Contributions of at most this size are copied even if the others could reach them: that saves the second
// meeting. From 4 KiB on a rank waits longer for the lines of a whole contribution than for the meeting, as a
// direct call needs those of its share only.
constexpr uint64_t kCopiedBytes = uint64_t{2} << 10;

// The maximum of an allgather's block that is copied, unless the kernel's protocol is refused. A payload is
// one copy more than reading the others' buffers takes, and from here on that costs more than the second
// meeting.
constexpr uint64_t kEagerBlockBytes = uint64_t{8} << 10;

// Looks of the express protocol for each reading of the clock.
constexpr uint64_t kLooksPerTime = 4;

// How long a rank that gives a call up waits for others to stop touching its buffers, in ms.
constexpr int64_t kUntouchedMs = 1'000;

// Prefetches another rank's contribution as soon as its descriptor is visible. Each cache line is a
// core-to-core transfer; without the prefetch, the loads of the reduction are submitted only after the
// calls have been compared, and stall on every line again.
void ask_for(const std::byte* content, uint64_t bytes) {
  constexpr uint64_t kLine = 64;
  // The first line need not begin at `content`.
  const std::byte* line = content - reinterpret_cast<uintptr_t>(content) % kLine;
  for (; line < content + bytes; line += kLine) __builtin_prefetch(line);
}

// True if other ranks write their shares of the result to this rank's recvbuf, so that they must reach it.
bool is_written_by_others(const ipc::Call& call, uint32_t rank) {
  return writes_to_others(call.what) && ipc::writes_recvbuf(call, rank);
}

}  // namespace

IntranodeQueue::IntranodeQueue(const NodeAccess& access, Memory memory)
    : access_(access),
      memory_(std::move(memory)),
      peer_memory_(memory_.open),
      reach_(access),
      mover_(access),
      staged_(access),
      reached_(access.layout().local_ranks) {}

uint64_t IntranodeQueue::contribution_bytes(const ipc::Call& call) const {
  return ipc::contribution_bytes(call, access_.layout().ranks);
}

void IntranodeQueue::push(const ipc::Call& call, const void* send, void* recv,
                          std::shared_ptr<Operation> operation) {
  const uint64_t record = access_.recorder().begin(call, next_sequence_);
  calls_.push_back({next_sequence_++, call, static_cast<const std::byte*>(send),
                    static_cast<std::byte*>(recv), std::move(operation), record});
}

uint64_t IntranodeQueue::eager_bytes(const ipc::Call& call) const {
  const bool blocks = call.what == collectives::Collective::kAllGather && !reach_.is_refused();
  return blocks ? kEagerBlockBytes : kEagerBytes;
}

// `needed` calls must be finished by every rank. The bound that is known from earlier looks is mostly
// enough.
bool IntranodeQueue::may_post(uint64_t sequence, bool payload) {
  const uint64_t reuse = payload ? kPayloads : kDescriptors;
  if (sequence < reuse) return true;
  const uint64_t needed = sequence - reuse + 1;
  if (known_finished_ < needed) known_finished_ = least(access_, &RankState::finished);
  return known_finished_ >= needed;
}

// Only buffers that other ranks need are looked up, as the first look-up of an allocation asks the
// daemon: a sendbuf that is contributed, and a recvbuf that others write to.
Result<Exposure> IntranodeQueue::expose(const ipc::Call& call, const std::byte* send,
                                        const std::byte* recv) const {
  const auto locate = [&](const void* pointer, uint64_t bytes, uint64_t& memory, uint64_t& offset) -> Status {
    // Without shared memory, the address itself is exposed, for the protocol through the kernel.
    offset = reinterpret_cast<uint64_t>(pointer);
    if (pointer == nullptr) return Status::ok();
    const auto place = memory_.locate(pointer, bytes);
    if (!place.is_ok()) return place.status();
    memory = place.value().memory;
    if (memory != 0) offset = place.value().offset;
    return Status::ok();
  };
  Exposure exposure;
  if (ipc::reads_sendbuf(call, access_.rank)) {
    HDT_RETURN_IF_ERROR(locate(send, contribution_bytes(call), exposure.send_memory, exposure.send));
  }
  if (is_written_by_others(call, access_.rank)) {
    HDT_RETURN_IF_ERROR(
        locate(recv, result_bytes(call, access_.layout().ranks), exposure.recv_memory, exposure.recv));
  }
  return exposure;
}

// 1. Decide what the descriptor holds: the contribution itself (up to kInlineBytes), a payload, or only
//    the places of the buffers. A contribution above kCopiedBytes has a payload only if its buffers
//    cannot be mapped: copying is then the fastest protocol for up to eager_bytes().
// 2. See whether the place is free. Nothing is written before that.
// 3. Write it, `sequence` last.
bool IntranodeQueue::try_post(const ipc::Call& call, const std::byte* send, std::byte* recv) {
  const uint64_t sequence = posted_;
  const uint64_t bytes = contribution_bytes(call);
  const bool own = ipc::reads_sendbuf(call, access_.rank);
  Exposure exposure;
  if (bytes > kCopiedBytes) {
    auto made = expose(call, send, recv);
    if (!made.is_ok()) {
      access_.fail(made.status().code(), static_cast<int32_t>(access_.rank), made.status().message());
      return false;
    }
    exposure = made.value();
  }
  const bool reachable = (!own || exposure.send_memory != 0) &&
                         (!is_written_by_others(call, access_.rank) || exposure.recv_memory != 0);
  const bool payload =
      bytes > kInlineBytes && bytes <= eager_bytes(call) && !(bytes > kCopiedBytes && reachable);
  if (!may_post(sequence, payload)) return false;
  CallDescriptor& post = access_.segment.post(access_.local, sequence);
  RankState& rank_state = access_.rank_state();
  post.unfinished = static_cast<uint32_t>(sequence - rank_state.finished.load(std::memory_order_relaxed));
  post.call = call;
  if (bytes > kInlineBytes) {
    post.copied = payload ? 1 : 0;
    // The first rank decides for all which of the two protocols for ordinary memory to take, if it comes to
    // that.
    if (access_.local == 0)
      post.by_kernel = tuner_.choose(call.what, bytes) == ProtocolTuner::Protocol::kKernel ? 1 : 0;
    if (payload && own) std::memcpy(access_.segment.payload(access_.local, sequence), send, bytes);
    std::memcpy(post.content, &exposure, sizeof exposure);
  } else if (own && bytes != 0) {
    std::memcpy(post.content, send, bytes);
  }
  post.sequence.store(sequence + 1, std::memory_order_release);
  // For fail_if_departed() of the other ranks: after a departure it says how many calls were made.
  rank_state.entered.store(sequence + 1, std::memory_order_release);
  ++posted_;
  return true;
}

// Calls are posted in order, so the first one that cannot be posted ends the loop. One ring serves all.
bool IntranodeQueue::post_calls() {
  const uint64_t before = posted_;
  while (posted_ < next_sequence_) {
    const Entry& entry = calls_[posted_ - calls_.front().sequence];
    if (!try_post(entry.call, entry.send, entry.recv)) break;
  }
  if (posted_ == before) return false;
  access_.ring_peers();
  return true;
}

// True when every rank has posted the call, and the same one.
bool IntranodeQueue::all_posted(uint64_t sequence, const ipc::Call& call) {
  if (compared_ > sequence) return true;
  // The minimum of what the descriptors say: how far every rank had come. It comes with lines that are
  // read anyway, and saves may_post() the rank states.
  uint64_t finished = UINT64_MAX;
  // The sizes are computed before the look, so that nothing lies between seeing a descriptor and the
  // prefetch. Contributions above kCopiedBytes are not prefetched.
  const uint64_t bytes = contribution_bytes(call);
  const uint64_t in_post = bytes <= kInlineBytes ? bytes : 0;
  const uint64_t in_payload = in_post == 0 && bytes <= kCopiedBytes ? bytes : 0;
  // Of a reduce-scatter a rank reads its own block only.
  const bool own_block = call.what == collectives::Collective::kReduceScatter;
  const uint64_t read = own_block ? in_payload / access_.layout().ranks : in_payload;
  const uint64_t first = own_block ? read * access_.local : 0;
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const CallDescriptor& post = access_.segment.post(i, sequence);
    if (post.sequence.load(std::memory_order_acquire) != sequence + 1) return false;
    if (i != access_.local) {
      ask_for(post.content, in_post);
      ask_for(access_.segment.payload(i, sequence) + first, read);
    }
    finished = std::min(finished, sequence - std::min<uint64_t>(sequence, post.unfinished));
  }
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    // The calls are compared only when all are there. This rank's own descriptor compares equal.
    const ipc::Call& other = access_.segment.post(i, sequence).call;
    if (other == call) continue;
    fail_mismatch(access_, sequence, call, i, other);
    return false;
  }
  known_finished_ = std::max(known_finished_, finished);
  compared_ = sequence + 1;
  return true;
}

// Until no stage moves: a call that is finished may free a place for the next one to be posted. The
// bitwise `|` runs all three.
bool IntranodeQueue::progress() {
  bool any = false;
  while (!access_.segment.failed()) {
    const bool moved = static_cast<int>(post_calls()) | static_cast<int>(work()) | static_cast<int>(finish());
    if (!moved) break;
    any = true;
  }
  return any;
}

// Every rank comes to the same result, since it depends on the descriptors of all ranks, and on what all
// ranks have published of their reach, and on nothing else. If ranks chose differently, they would wait
// for each other for ever.
IntranodeQueue::Protocol IntranodeQueue::choose(const ipc::Call& call, uint64_t sequence) {
  if (contribution_bytes(call) <= kInlineBytes) return Protocol::kEager;
  bool all_shared = true;
  bool all_copied = true;
  bool by_kernel = false;
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const CallDescriptor& post = access_.segment.post(i, sequence);
    Exposure exposure;
    std::memcpy(&exposure, post.content, sizeof exposure);
    all_copied &= post.copied != 0;
    if (i == 0) by_kernel = post.by_kernel != 0;
    // In a group of one node, rank and local index are the same.
    if (ipc::reads_sendbuf(call, i) && exposure.send_memory == 0) all_shared = false;
    if (is_written_by_others(call, i) && exposure.recv_memory == 0) all_shared = false;
  }
  // From the cheapest protocol to the most general one.
  if (all_copied) return Protocol::kEager;
  if (all_shared) return Protocol::kMapped;
  if (!by_kernel) return Protocol::kStaged;
  // The kernel's protocol needs every rank's consent, which may not be known yet.
  switch (reach_.ask()) {
    case Reach::Answer::kNotYet:
      return Protocol::kUnknown;
    case Reach::Answer::kYes:
      return Protocol::kKernel;
    case Reach::Answer::kNo:
      break;
  }
  return Protocol::kStaged;
}

// For this rank its own buffers; for each other rank the mapping of its shared memory, or its process
// and the addresses there.
bool IntranodeQueue::reach_all(const Entry& entry) {
  const uint32_t ranks = access_.layout().ranks;
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    Reached& rank = reached_[i];
    rank = {};
    if (i == access_.local) {
      rank.send = const_cast<std::byte*>(entry.send);
      rank.recv = entry.recv;
      rank.in_place = entry.send == entry.recv;
      continue;
    }
    Exposure exposure;
    std::memcpy(&exposure, access_.segment.post(i, entry.sequence).content, sizeof exposure);
    rank.in_place = exposure.send == exposure.recv && exposure.send_memory == exposure.recv_memory;
    // The rank's state is on lines that the rank writes: they are not read where they are not needed.
    if (entry.protocol == Protocol::kKernel) rank.process = process_of(access_.segment.rank_state(i));
    rank.send_address = exposure.send;
    rank.recv_address = exposure.recv;
    const auto map = [&](uint64_t memory, uint64_t offset, uint64_t bytes, std::byte*& mapped) {
      if (memory == 0) return true;
      auto reached = peer_memory_.reach(memory, offset, bytes);
      if (reached.is_ok()) mapped = reached.value();
      if (!reached.is_ok()) {
        access_.fail(reached.status().code(), static_cast<int32_t>(access_.rank_of(i)),
                     reached.status().message());
      }
      return reached.is_ok();
    };
    if (!map(exposure.send_memory, exposure.send, ipc::contribution_bytes(entry.call, ranks), rank.send))
      return false;
    if (!map(exposure.recv_memory, exposure.recv, result_bytes(entry.call, ranks), rank.recv)) return false;
  }
  return true;
}

// The share is cut into tasks (local_work.h), which the mover runs. A failure, for example of a process
// that has died, fails the group.
bool IntranodeQueue::share_work(const Entry& entry) {
  if (!reach_all(entry)) return false;
  return for_each_task(entry.call, access_.layout().ranks, access_.rank, Sharing::kShares,
                       [&](const Task& task) {
                         const Status status = mover_.run(entry.call, task, reached_);
                         if (!status.is_ok())
                           access_.fail(status.code(), static_cast<int32_t>(access_.rank), status.message());
                         return status.is_ok();
                       });
}

// Every contribution is in a descriptor or a payload; only this rank's own buffer is written.
void IntranodeQueue::take_eager(const ipc::Call& call, uint64_t sequence, const std::byte* send,
                                std::byte* recv) {
  const uint64_t bytes = ipc::contribution_bytes(call, access_.layout().ranks);
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    reached_[i] = {};
    reached_[i].send = bytes > kInlineBytes ? access_.segment.payload(i, sequence)
                                            : access_.segment.post(i, sequence).content;
  }
  // The own contribution is not read from the own descriptor: loads that are wider than the stores
  // before them wait until those have left the core, which takes as long as the line is with the other
  // cores.
  reached_[access_.local].send = const_cast<std::byte*>(send);
  reached_[access_.local].recv = recv;
  for_each_task(call, access_.layout().ranks, access_.rank, Sharing::kOwnResult, [&](const Task& task) {
    mover_.run_own(call, task, reached_);
    return true;
  });
}

// The oldest call whose share is not done:
// 1. All ranks must have posted it.
// 2. Choose the protocol, once.
// 3. Do the work; a staged call may take many turns.
// 4. In a direct call, publish that the share is done.
bool IntranodeQueue::work() {
  if (calls_.empty()) return false;
  const uint64_t index = worked_ - calls_.front().sequence;
  if (index >= calls_.size()) return false;
  Entry& entry = calls_[index];
  if (!all_posted(entry.sequence, entry.call)) {
    // Only a call that this rank has made itself can be missing on a rank that has departed.
    if (posted_ > entry.sequence) (void)fail_if_departed(access_, entry.sequence);
    return false;
  }
  if (entry.protocol == Protocol::kUnknown) {
    // The call before has ended on this rank, so at most one staged call is under protocol.
    entry.protocol = choose(entry.call, entry.sequence);
    if (entry.protocol == Protocol::kUnknown) return false;
    access_.recorder().start(entry.record);
    // The first rank times the two protocols between which the tuner decides, from when all ranks had posted
    // the call.
    if (access_.local == 0 && (entry.protocol == Protocol::kKernel || entry.protocol == Protocol::kStaged)) {
      entry.started = std::chrono::steady_clock::now();
    }
    if (entry.protocol == Protocol::kStaged) staged_.begin(entry.call, entry.send, entry.recv);
  }
  switch (entry.protocol) {
    case Protocol::kEager:
      take_eager(entry.call, entry.sequence, entry.send, entry.recv);
      break;
    case Protocol::kMapped:
    case Protocol::kKernel:
      // A share that was given up because the group has failed does not count as done.
      if (!share_work(entry) || access_.segment.failed()) return false;
      break;
    case Protocol::kStaged: {
      const bool any = staged_.progress();
      if (!staged_.done()) return any;
      break;
    }
    case Protocol::kUnknown:
      return false;
  }
  ++worked_;
  if (is_direct(entry.protocol)) {
    access_.rank_state().worked.store(worked_, std::memory_order_release);
    access_.ring_peers();
  }
  return true;
}

// In a direct call other ranks read this rank's sendbuf and write its recvbuf, so it ends when all have
// worked. In an eager or a staged call nobody touches this rank's buffers.
bool IntranodeQueue::finish() {
  if (calls_.empty() || calls_.front().sequence >= worked_) return false;
  const Entry& entry = calls_.front();
  if (is_direct(entry.protocol) && least(access_, &RankState::worked) <= entry.sequence) return false;
  // Before the operation completes: the user may make the next call at once, which needs free places.
  finished(entry.sequence);
  if (entry.started.time_since_epoch().count() != 0) {
    // If the kernel is refused, both answers of the tuner lead to staging, and the times do not matter.
    const auto took = std::chrono::steady_clock::now() - entry.started;
    tuner_.took(entry.call.what, contribution_bytes(entry.call),
                entry.protocol == Protocol::kKernel ? ProtocolTuner::Protocol::kKernel
                                                    : ProtocolTuner::Protocol::kSlots,
                std::chrono::nanoseconds(took).count());
  }
  access_.recorder().end(entry.record);
  count_buffers(entry.call, entry.protocol);
  entry.operation->complete(Status::ok());
  calls_.pop_front();
  access_.rank_state().doorbell.ring();  // another thread of this rank may wait for it
  return true;
}

// Peers may wait for the place of a descriptor.
void IntranodeQueue::finished(uint64_t sequence) {
  access_.rank_state().finished.store(sequence + 1, std::memory_order_release);
  access_.ring_peers();
}

// Only mapped memory is read and written where it is. The kernel's protocol copies, too, in the kernel.
void IntranodeQueue::count_buffers(const ipc::Call& call, Protocol protocol) const {
  const auto sizes = ipc::buffer_sizes(call, access_.layout().ranks, access_.rank);
  const uint64_t bytes = sizes.send + sizes.recv;
  access_.count_buffers(bytes, protocol == Protocol::kMapped ? 0 : bytes);
}

// Only if nothing is under protocol, since calls must be posted in order.
bool IntranodeQueue::express(const ipc::Call& call, const void* send, void* recv) {
  if (!calls_.empty() || contribution_bytes(call) > eager_bytes(call)) return false;
  if (!try_post(call, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv))) return false;
  // The call is under protocol to the others meanwhile, so the record costs no time here.
  express_record_ = access_.recorder().begin(call, next_sequence_);
  ++next_sequence_;
  express_looks_ = 0;
  express_ticks_ = access_.recorder().entered_at(express_record_);
  return true;
}

// The call is the latest one, as nothing else is under protocol.
IntranodeQueue::Express IntranodeQueue::express_done(const ipc::Call& call, const void* send, void* recv) {
  const uint64_t sequence = next_sequence_ - 1;
  if (!all_posted(sequence, call)) {
    // A reading of the clock after the call would delay the next one. The latest look that found the
    // call waiting is near enough, and costs nothing there.
    if (express_looks_++ % kLooksPerTime == 0) express_ticks_ = ticks();
    return Express::kWaiting;
  }
  if (choose(call, sequence) != Protocol::kEager) return Express::kNeedsQueue;
  take_eager(call, sequence, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv));
  ++worked_;
  finished(sequence);
  access_.recorder().end(express_record_, Code::kSuccess, express_ticks_);
  count_buffers(call, Protocol::kEager);
  return Express::kDone;
}

// The call keeps its number and its record; it is posted already.
void IntranodeQueue::adopt(const ipc::Call& call, const void* send, void* recv,
                           std::shared_ptr<Operation> operation) {
  calls_.push_back({next_sequence_ - 1, call, static_cast<const std::byte*>(send),
                    static_cast<std::byte*>(recv), std::move(operation), express_record_});
  access_.ring_peers();
}

// Other ranks may still read or write this rank's buffers, for a block each (Touch in local_mover.cc).
// The caller gets them back when nobody does: a rank that begins a block now sees the failure first. A
// rank whose process has ended touches nothing. After kUntouchedMs the wait is given up.
void IntranodeQueue::fail_all(const Status& status) {
  if (calls_.empty()) return;
  const Deadline deadline = Deadline::after_ms(kUntouchedMs);
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const RankState& rank_state = access_.segment.rank_state(i);
    const auto touches = [&] {
      return i != access_.local && rank_state.touching.load(std::memory_order_seq_cst) != 0;
    };
    while (touches() && !reach_.ended(i) && !deadline.expired()) std::this_thread::yield();
  }
  for (; !calls_.empty(); calls_.pop_front()) {
    access_.recorder().end(calls_.front().record, status.code());
    calls_.front().operation->complete(status);
  }
}

}  // namespace hdt::client
