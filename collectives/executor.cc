// executor.cc: a window slides over the schedule's list. Within the window every step starts as soon as
// no earlier incomplete step conflicts with it. A schedule comes to its end even in strict list order
// (schedule.h), so the window may be small: it bounds how much runs ahead, not what is possible. Nothing
// is allocated after construction.
//
// A step goes from kWaiting to kComplete in run(); a send may stay kInFlight until on_sent(). For a successor
// of this daemon each completion is published in Progress before anything that follows from it is done.
#include "collectives/executor.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/hazards.h"
#include "collectives/kernels.h"

namespace hdt::collectives {
namespace {

// kInFlight is for sends only: the payload's memory is still being read.
enum class Phase : uint8_t { kWaiting, kInFlight, kComplete };

// A step in the window.
struct Entry {
  Step step;
  uint32_t tag = 0;  // number among the sends to, or the receives from, its peer
  Phase phase = Phase::kWaiting;
};

// The traffic between this node and one peer. Arrivals are kept as one bit for each tag, from first_bit
// on in State::arrived.
struct Exchange {
  int peer;
  uint32_t receives = 0;  // in the whole schedule
  size_t first_bit = 0;
  uint32_t next_send_tag = 0;
  uint32_t next_receive_tag = 0;
};

}  // namespace

// All of the executor; the header stays free of its parts.
struct Executor::State {
  std::unique_ptr<Schedule> schedule;
  DataType type;
  ReduceOp op;
  SlotMemory memory;
  Port& port;
  std::vector<Exchange> exchanges;    // by peer, ascending
  std::vector<bool> arrived;          // by Exchange::first_bit + tag
  std::vector<const void*> operands;  // of the reduction under way, from left to right
  std::vector<const void*> parts;     // some elements of each of them
  std::array<Entry, kStepWindow> window{};
  size_t first = 0;     // steps before it are complete
  size_t loaded = 0;    // steps [first, loaded) are in the window, step s at s % kStepWindow
  bool at_end = false;  // the schedule has no step `loaded`
  Progress* progress = nullptr;
  uint32_t later = 0;  // bit i: step first + i is complete

  Entry& entry(size_t index) { return window[index % kStepWindow]; }

  // Null for a peer that the schedule does not name. Binary search, as there is one entry for each peer.
  Exchange* find(int peer) {
    const auto at = std::lower_bound(exchanges.begin(), exchanges.end(), peer,
                                     [](const Exchange& e, int p) { return e.peer < p; });
    return at != exchanges.end() && at->peer == peer ? &*at : nullptr;
  }

  // Where an element of an area is. Null for an area that is not there, which only steps of length 0 name.
  std::byte* address(Area area, uint64_t offset) const {
    std::byte* const bases[] = {memory.input, memory.output, memory.scratch};
    std::byte* const base = bases[static_cast<size_t>(area)];
    const BlockLayout* blocks = area == Area::kInput    ? memory.input_blocks
                                : area == Area::kOutput ? memory.output_blocks
                                                        : nullptr;
    if (blocks != nullptr) offset = blocks->starts[offset / blocks->elements] + offset % blocks->elements;
    return base == nullptr ? nullptr : base + offset * type_size(type);
  }

  // Goes through the whole list once and counts the payloads from each peer, so that an arrival of any
  // tag has its bit, and no other has. Also the operands of a reduction. These are the only allocations
  // that depend on the schedule.
  void count_arrivals() {
    size_t receives = 0;
    size_t most_operands = 2;  // of a kRecvReduce
    for (size_t i = 0; const auto step = schedule->step(i); ++i) {
      most_operands = std::max(most_operands, static_cast<size_t>(step->gathered) + 1);
      if (step->peer < 0) continue;
      auto at = std::lower_bound(exchanges.begin(), exchanges.end(), step->peer,
                                 [](const Exchange& e, int p) { return e.peer < p; });
      if (at == exchanges.end() || at->peer != step->peer) at = exchanges.insert(at, Exchange{step->peer});
      if (!is_receive(*step)) continue;
      ++at->receives;
      ++receives;
    }
    arrived.resize(receives);
    operands.reserve(most_operands);
    parts.reserve(most_operands);
    size_t bit = 0;
    for (Exchange& exchange : exchanges) {
      exchange.first_bit = bit;
      bit += exchange.receives;
    }
  }

  // Fills the window from the list.
  void load() {
    while (!at_end && loaded - first < kStepWindow) {
      const std::optional<Step> step = schedule->step(loaded);
      if (!step) {
        at_end = true;
        return;
      }
      Entry& e = entry(loaded++);
      e = Entry{*step};
      if (step->peer < 0) continue;
      e.tag = next_tag(*step);
    }
  }

  // Tags follow the order of the list, which is why steps must be loaded in this order, also those that
  // a predecessor has completed.
  uint32_t next_tag(const Step& step) {
    Exchange& exchange = *find(step.peer);
    return is_receive(step) ? exchange.next_receive_tag++ : exchange.next_send_tag++;
  }

  // Takes up what a predecessor has left. Steps that are complete for it are passed over, but their tags
  // are counted. The memory is foreign, so no more of it is believed than the schedule has steps.
  void go_on() {
    const uint64_t word = progress->complete.load(std::memory_order_acquire);
    const auto complete = static_cast<uint32_t>(word);
    for (; loaded < complete; ++loaded) {
      const std::optional<Step> step = schedule->step(loaded);
      if (!step) break;
      if (step->peer >= 0) (void)next_tag(*step);
    }
    first = loaded;
    load();
    for (size_t i = first; i < loaded; ++i) {
      if ((word >> (32 + i - first) & 1) == 0) continue;
      entry(i).phase = Phase::kComplete;
      later |= uint32_t{1} << (i - first);
    }
    slide();
  }

  // Marks a step complete, for a successor, too, before anything that follows from it is done. The
  // release store publishes the step's results with it; it pairs with the acquire load in go_on().
  void complete_step(size_t index) {
    entry(index).phase = Phase::kComplete;
    later |= uint32_t{1} << (index - first);
    if (progress == nullptr) return;
    progress->complete.store(uint64_t{later} << 32 | static_cast<uint32_t>(first), std::memory_order_release);
  }

  // Moves the front of the window over complete steps. The word in Progress is not written here: it
  // means the same before and after, as it holds the front that its bits count from.
  void slide() {
    for (; first < loaded && entry(first).phase == Phase::kComplete; ++first) later >>= 1;
  }

  // True if an earlier step that is not complete conflicts with this one. At most kStepWindow comparisons.
  bool blocked(size_t index) {
    for (size_t i = first; i < index; ++i) {
      if (entry(i).phase != Phase::kComplete && conflicts(entry(i).step, entry(index).step)) return true;
    }
    return false;
  }

  bool has_arrived(const Entry& e) { return arrived[find(e.step.peer)->first_bit + e.tag]; }

  // Runs the step if it can run now. The order of the two questions matters for speed only: most steps
  // wait for their payload.
  void run(size_t index) {
    Entry& e = entry(index);
    const Step& step = e.step;
    if (is_receive(step) && !has_arrived(e)) return;
    if (blocked(index)) return;
    const size_t bytes = step.length * type_size(type);
    // kInFlight before the call, because the port may look at the executor's state.
    if (step.kind == StepKind::kSend) {
      e.phase = Phase::kInFlight;
      if (write(e, index)) complete_step(index);
      return;
    }
    if (step.kind == StepKind::kRecvReduce || step.kind == StepKind::kReduce) {
      list_operands(step);
      std::byte* const to = address(step.to, step.offset);
      if (progress != nullptr && to == address(step.from, step.offset)) {
        reduce_in_place(to, step.length, index);
      } else {
        void* const results[] = {to};
        reduce(type, op, operands, results, step.length);
      }
    } else if (step.kind == StepKind::kCopy) {
      std::byte* const to = address(step.to, step.offset);
      const std::byte* const from = address(step.from, step.offset);
      if (to != from) std::memcpy(to, from, bytes);
    }
    complete_step(index);
  }

  // The order of the operands is the algorithm's, so that all nodes get the same bits.
  void list_operands(const Step& step) {
    const std::byte* const own = address(step.from, step.offset);
    operands.clear();
    if (step.kind == StepKind::kRecvReduce) {
      operands.assign({own, address(Area::kScratch, step.target)});
      if (step.peer_first) std::swap(operands[0], operands[1]);
      return;
    }
    for (int i = 0; i < step.gathered; ++i)
      operands.push_back(address(Area::kScratch, step.target + static_cast<uint64_t>(i) * step.length));
    operands.insert(operands.begin() + step.place, own);
  }

  // Combines where the result overwrites an operand, so that a successor can go on after a crash at any
  // moment. Each block goes through `spare`: (1) mark "block b, not in spare"; (2) compute into spare; (3)
  // mark "block b in spare"; (4) copy spare to its place. A successor that finds mark 1 computes the block
  // again from operands that are untouched; one that finds mark 3 copies it again, which changes nothing.
  void reduce_in_place(std::byte* to, uint64_t length, size_t index) {
    const size_t width = type_size(type);
    const uint64_t most = kSpareBytes / width;        // elements of a block
    const uint64_t name = uint64_t{index + 1} << 32;  // this step's mark; 0 would be "none"
    const auto mark = [&](uint64_t block, bool in_spare) {
      progress->overwriting.store(name | block << 1 | (in_spare ? 1 : 0), std::memory_order_release);
    };
    const uint64_t left = progress->overwriting.load(std::memory_order_acquire);
    const bool begun = left >> 32 == index + 1;
    uint64_t block = begun ? (left & 0xffff'ffff) >> 1 : 0;
    bool in_spare = begun && (left & 1) != 0;
    for (; block * most < length; ++block, in_spare = false) {
      const uint64_t first_element = block * most;
      const uint64_t count = std::min(most, length - first_element);
      if (!in_spare) {
        mark(block, false);
        parts.clear();
        for (const void* operand : operands)
          parts.push_back(static_cast<const std::byte*>(operand) + first_element * width);
        void* const results[] = {progress->spare};
        reduce(type, op, parts, results, count);
        mark(block, true);
      }
      std::memcpy(to + first_element * width, progress->spare, count * width);
    }
  }

  bool write(const Entry& e, size_t index) {
    const Step& step = e.step;
    return port.write(step.peer, e.tag, address(step.from, step.offset), step.length * type_size(type),
                      step.to, step.target * type_size(type), index);
  }

  // A step depends only on earlier ones, so one pass in list order starts everything that can start. If
  // the pass has completed steps at the front, the window has room for more and another pass follows.
  void advance() {
    size_t before;
    do {
      load();
      for (size_t i = first; i < loaded; ++i) {
        if (entry(i).phase == Phase::kWaiting) run(i);
      }
      before = first;
      slide();
    } while (first != before && !at_end);
  }
};

Executor::Executor(std::unique_ptr<Schedule> schedule, DataType type, ReduceOp op, SlotMemory memory,
                   Port& port, Progress* progress)
    : state_(new State{std::move(schedule), type, op, memory, port, {}, {}, {}, {}}) {
  state_->count_arrivals();
  state_->progress = progress;
  if (progress != nullptr) state_->go_on();
}

Executor::~Executor() = default;

void Executor::on_arrived(int peer, uint32_t tag) {
  Exchange* const exchange = state_->find(peer);
  if (exchange != nullptr && tag < exchange->receives) state_->arrived[exchange->first_bit + tag] = true;
}

void Executor::on_sent(size_t step) {
  if (step < state_->first || step >= state_->loaded) return;
  if (state_->entry(step).phase == Phase::kInFlight) state_->complete_step(step);
}

// write() may complete a step, but does not slide the window, so the loop's indices stay valid.
void Executor::write_again(int peer, const std::function<bool(uint32_t)>& has) {
  for (size_t i = state_->first; i < state_->loaded; ++i) {
    const Entry& entry = state_->entry(i);
    if (entry.phase != Phase::kInFlight || entry.step.peer != peer) continue;
    if (has(entry.tag) || state_->write(entry, i)) state_->complete_step(i);
  }
}

void Executor::advance() { state_->advance(); }

bool Executor::done() const { return state_->at_end && state_->first == state_->loaded; }

}  // namespace hdt::collectives
