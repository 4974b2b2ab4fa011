#include "libclient/intranode/node_queue.h"

#include <algorithm>
#include <cstring>
#include <thread>

namespace hdt::client {

using collectives::Collective;
using session::Board;
using session::Exposure;
using session::kEagerBytes;
using session::kInlineBytes;
using session::kPayloads;
using session::kPosts;
using session::Post;
using session::result_bytes;

namespace {

// Up to this many bytes a contribution is copied even if others could reach it: one meeting instead of two.
constexpr uint64_t kCopiedBytes = uint64_t{4} << 10;
// Calls up to this size are looked at from the express way: beyond it, time is spent in moving bytes.
constexpr uint64_t kExpressBytes = kEagerBytes;

// Looks of the express way for each look at the clock.
constexpr uint64_t kLooksPerTime = 4;

// How long a rank that gives up waits for others to stop touching its buffers.
constexpr int64_t kUntouchedMs = 1'000;

// Asks for what another rank contributes as soon as its post is seen: each line is a way between two cores,
// and the loads of the reduction come late enough after the comparison of calls to wait for all of them anew.
void ask_for(const std::byte* content, uint64_t bytes) {
  constexpr uint64_t kLine = 64;
  const std::byte* line = content - reinterpret_cast<uintptr_t>(content) % kLine;
  for (; line < content + bytes; line += kLine) __builtin_prefetch(line);
}

// True if this rank's sendbuf holds something that is to be contributed.
bool contributes(const session::Call& call, uint32_t rank) {
  return call.what != Collective::kBroadcast || static_cast<uint32_t>(call.root) == rank;
}

}  // namespace

NodeQueue::NodeQueue(const NodeAccess& access, Memory memory)
    : access_(access),
      memory_(std::move(memory)),
      peer_memory_(memory_.open),
      reach_(access),
      mover_(access),
      staged_(access),
      reached_(access.layout().local_ranks) {}

uint64_t NodeQueue::contribution_bytes(const session::Call& call) const {
  return session::contribution_bytes(call, access_.layout().ranks);
}

void NodeQueue::push(const session::Call& call, const void* send, void* recv,
                     std::shared_ptr<Operation> operation) {
  const uint64_t record = access_.recorder().begin(call, next_sequence_);
  calls_.push_back({next_sequence_++, call, static_cast<const std::byte*>(send),
                    static_cast<std::byte*>(recv), std::move(operation), record});
}

bool NodeQueue::may_post(uint64_t sequence, bool payload) {
  const uint64_t reuse = payload ? kPayloads : kPosts;
  if (sequence < reuse) return true;
  const uint64_t needed = sequence - reuse + 1;
  if (known_finished_ < needed) known_finished_ = least(access_, &Board::finished);
  return known_finished_ >= needed;
}

// Where this rank's buffers are, as far as others may need them.
Result<Exposure> NodeQueue::expose(const session::Call& call, const std::byte* send,
                                   const std::byte* recv) const {
  const auto locate = [&](const void* pointer, uint64_t bytes, uint64_t& memory, uint64_t& offset) -> Status {
    offset = reinterpret_cast<uint64_t>(pointer);
    if (pointer == nullptr) return Status::ok();
    const auto place = memory_.locate(pointer, bytes);
    if (!place.is_ok()) return place.status();
    memory = place.value().memory;
    if (memory != 0) offset = place.value().offset;
    return Status::ok();
  };
  Exposure exposure;
  if (contributes(call, access_.rank)) {
    HDT_RETURN_IF_ERROR(locate(send, contribution_bytes(call), exposure.send_memory, exposure.send));
  }
  if (writes_to_others(call.what)) {
    HDT_RETURN_IF_ERROR(
        locate(recv, result_bytes(call, access_.layout().ranks), exposure.recv_memory, exposure.recv));
  }
  return exposure;
}

bool NodeQueue::try_post(const session::Call& call, const std::byte* send, std::byte* recv) {
  const uint64_t sequence = posted_;
  const uint64_t bytes = contribution_bytes(call);
  const bool own = contributes(call, access_.rank);
  Exposure exposure;
  if (bytes > kCopiedBytes) {
    auto made = expose(call, send, recv);
    if (!made.is_ok()) {
      access_.fail(made.status().code(), static_cast<int32_t>(access_.rank), made.status().message());
      return false;
    }
    exposure = made.value();
  }
  const bool reachable =
      (!own || exposure.send_memory != 0) && (!writes_to_others(call.what) || exposure.recv_memory != 0);
  const bool payload = bytes > kInlineBytes && bytes <= kEagerBytes && !(bytes > kCopiedBytes && reachable);
  if (!may_post(sequence, payload)) return false;
  Post& post = access_.segment.post(access_.local, sequence);
  Board& board = access_.board();
  post.finished = board.finished.load(std::memory_order_relaxed);
  post.call = call;
  if (bytes > kInlineBytes) {
    exposure.copied = payload ? 1 : 0;
    if (access_.local == 0)
      exposure.by_kernel = tuner_.choose(call.what, bytes) == WayTuner::Way::kKernel ? 1 : 0;
    if (payload && own) std::memcpy(access_.segment.payload(access_.local, sequence), send, bytes);
    std::memcpy(post.content, &exposure, sizeof exposure);
  } else if (own && bytes != 0) {
    std::memcpy(post.content, send, bytes);
  }
  post.sequence.store(sequence + 1, std::memory_order_release);
  board.entered.store(sequence + 1, std::memory_order_release);
  ++posted_;
  return true;
}

bool NodeQueue::post_calls() {
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
bool NodeQueue::all_posted(uint64_t sequence, const session::Call& call) {
  if (compared_ > sequence) return true;
  uint64_t finished = UINT64_MAX;
  // Known before the look, so that nothing lies between seeing a post and asking for the rest of it.
  const uint64_t bytes = contribution_bytes(call);
  const uint64_t in_post = bytes <= kInlineBytes ? bytes : 0;
  const uint64_t in_payload = in_post == 0 && bytes <= kCopiedBytes ? bytes : 0;
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const Post& post = access_.segment.post(i, sequence);
    if (post.sequence.load(std::memory_order_acquire) != sequence + 1) return false;
    if (i != access_.local) {
      ask_for(post.content, in_post);
      ask_for(access_.segment.payload(i, sequence), in_payload);
    }
    finished = std::min(finished, post.finished);
  }
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const session::Call& other = access_.segment.post(i, sequence).call;
    if (other == call) continue;
    fail_mismatch(access_, sequence, call, i, other);
    return false;
  }
  known_finished_ = std::max(known_finished_, finished);
  compared_ = sequence + 1;
  return true;
}

bool NodeQueue::progress() {
  bool any = false;
  while (!access_.segment.failed()) {
    const bool moved = static_cast<int>(post_calls()) | static_cast<int>(work()) | static_cast<int>(finish());
    if (!moved) break;
    any = true;
  }
  return any;
}

// Every rank comes to the same answer: it depends on the posts of all, and on what all have told of their
// reach.
NodeQueue::Way NodeQueue::choose(const session::Call& call, uint64_t sequence) {
  if (contribution_bytes(call) <= kInlineBytes) return Way::kEager;
  bool all_shared = true;
  bool all_copied = true;
  bool by_kernel = false;
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    Exposure exposure;
    std::memcpy(&exposure, access_.segment.post(i, sequence).content, sizeof exposure);
    const bool receives = call.what != Collective::kReduce || static_cast<uint32_t>(call.root) == i;
    all_copied &= exposure.copied != 0;
    if (i == 0) by_kernel = exposure.by_kernel != 0;
    if (contributes(call, i) && exposure.send_memory == 0) all_shared = false;
    if (writes_to_others(call.what) && receives && exposure.recv_memory == 0) all_shared = false;
  }
  if (all_copied) return Way::kEager;
  if (all_shared) return Way::kMapped;
  if (!by_kernel) return Way::kStaged;
  switch (reach_.ask()) {
    case Reach::Answer::kNotYet:
      return Way::kUnknown;
    case Reach::Answer::kYes:
      return Way::kKernel;
    case Reach::Answer::kNo:
      break;
  }
  return Way::kStaged;
}

// Fills reached_ for a direct call; fails the group if shared memory cannot be mapped.
bool NodeQueue::reach_all(const Entry& entry) {
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
    rank.process = process_of(access_.segment.board(i));
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
    if (!map(exposure.send_memory, exposure.send, session::contribution_bytes(entry.call, ranks), rank.send))
      return false;
    if (!map(exposure.recv_memory, exposure.recv, result_bytes(entry.call, ranks), rank.recv)) return false;
  }
  return true;
}

bool NodeQueue::share_work(const Entry& entry) {
  if (!reach_all(entry)) return false;
  return for_each_task(entry.call, access_.layout().ranks, access_.rank, Sharing::kShares,
                       [&](const Task& task) {
                         const Status status = mover_.run(entry.call, task, reached_);
                         if (!status.is_ok())
                           access_.fail(status.code(), static_cast<int32_t>(access_.rank), status.message());
                         return status.is_ok();
                       });
}

void NodeQueue::take_eager(const session::Call& call, uint64_t sequence, const std::byte* send,
                           std::byte* recv) {
  const uint64_t bytes = session::contribution_bytes(call, access_.layout().ranks);
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    reached_[i] = {};
    reached_[i].send = bytes > kInlineBytes ? access_.segment.payload(i, sequence)
                                            : access_.segment.post(i, sequence).content;
  }
  // Not from its own post: loads wider than the stores before them wait until those have left the core, which
  // takes as long as the line is with the others.
  reached_[access_.local].send = const_cast<std::byte*>(send);
  reached_[access_.local].recv = recv;
  for_each_task(call, access_.layout().ranks, access_.rank, Sharing::kOwnResult, [&](const Task& task) {
    mover_.run_own(call, task, reached_);
    return true;
  });
}

bool NodeQueue::work() {
  if (calls_.empty()) return false;
  const uint64_t index = worked_ - calls_.front().sequence;
  if (index >= calls_.size()) return false;
  Entry& entry = calls_[index];
  if (!all_posted(entry.sequence, entry.call)) {
    if (posted_ > entry.sequence) (void)fail_if_left(access_, entry.sequence);
    return false;
  }
  if (entry.way == Way::kUnknown) {
    // Slots are used by one call at a time.
    entry.way = choose(entry.call, entry.sequence);
    if (entry.way == Way::kUnknown) return false;
    access_.recorder().start(entry.record);
    if (access_.local == 0 && (entry.way == Way::kKernel || entry.way == Way::kStaged)) {
      entry.started = std::chrono::steady_clock::now();
    }
    if (entry.way == Way::kStaged) staged_.begin(entry.call, entry.send, entry.recv);
  }
  switch (entry.way) {
    case Way::kEager:
      take_eager(entry.call, entry.sequence, entry.send, entry.recv);
      break;
    case Way::kMapped:
    case Way::kKernel:
      // A share that was given up because the group has failed is not done.
      if (!share_work(entry) || access_.segment.failed()) return false;
      break;
    case Way::kStaged: {
      const bool any = staged_.progress();
      if (!staged_.done()) return any;
      break;
    }
    case Way::kUnknown:
      return false;
  }
  ++worked_;
  if (is_direct(entry.way)) {
    access_.board().worked.store(worked_, std::memory_order_release);
    access_.ring_peers();
  }
  return true;
}

bool NodeQueue::finish() {
  if (calls_.empty() || calls_.front().sequence >= worked_) return false;
  const Entry& entry = calls_.front();
  if (is_direct(entry.way) && least(access_, &Board::worked) <= entry.sequence) return false;
  finished(entry.sequence);
  if (entry.started.time_since_epoch().count() != 0) {
    // Where the kernel is refused, both answers of the tuner are staged, and do not matter.
    const auto took = std::chrono::steady_clock::now() - entry.started;
    tuner_.took(entry.call.what, contribution_bytes(entry.call),
                entry.way == Way::kKernel ? WayTuner::Way::kKernel : WayTuner::Way::kSlots,
                std::chrono::nanoseconds(took).count());
  }
  access_.recorder().end(entry.record);
  entry.operation->complete(Status::ok());
  calls_.pop_front();
  access_.board().doorbell.ring();  // another thread of this rank may wait for it
  return true;
}

void NodeQueue::finished(uint64_t sequence) {
  access_.board().finished.store(sequence + 1, std::memory_order_release);
  access_.ring_peers();
}

bool NodeQueue::express(const session::Call& call, const void* send, void* recv) {
  if (!calls_.empty() || contribution_bytes(call) > kExpressBytes) return false;
  if (!try_post(call, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv))) return false;
  // The call is under way to the others meanwhile: here the record costs no time.
  express_record_ = access_.recorder().begin(call, next_sequence_);
  ++next_sequence_;
  express_looks_ = 0;
  express_ticks_ = access_.recorder().entered_at(express_record_);
  return true;
}

NodeQueue::Express NodeQueue::express_done(const session::Call& call, const void* send, void* recv) {
  const uint64_t sequence = next_sequence_ - 1;
  if (!all_posted(sequence, call)) {
    // A clock read when the call is over would delay the next one; a few looks before is near enough.
    if (express_looks_++ % kLooksPerTime == 0) express_ticks_ = ticks();
    return Express::kWaiting;
  }
  if (choose(call, sequence) != Way::kEager) return Express::kNeedsQueue;
  take_eager(call, sequence, static_cast<const std::byte*>(send), static_cast<std::byte*>(recv));
  ++worked_;
  finished(sequence);
  access_.recorder().end(express_record_, Code::kSuccess, express_ticks_);
  return Express::kDone;
}

void NodeQueue::adopt(const session::Call& call, const void* send, void* recv,
                      std::shared_ptr<Operation> operation) {
  calls_.push_back({next_sequence_ - 1, call, static_cast<const std::byte*>(send),
                    static_cast<std::byte*>(recv), std::move(operation), express_record_});
  access_.ring_peers();
}

// Others may still read or write this rank's buffers, for a block each: the caller gets them back when nobody
// does.
void NodeQueue::fail_all(const Status& status) {
  if (calls_.empty()) return;
  const Deadline deadline = Deadline::after_ms(kUntouchedMs);
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const Board& board = access_.segment.board(i);
    const auto touches = [&] {
      return i != access_.local && board.touching.load(std::memory_order_seq_cst) != 0;
    };
    while (touches() && !reach_.gone(i) && !deadline.expired()) std::this_thread::yield();
  }
  for (Entry& entry : calls_) {
    access_.recorder().end(entry.record, status.code());
    entry.operation->complete(status);
  }
  calls_.clear();
}

}  // namespace hdt::client
