// hazards.h: which steps of one node must keep their order. This is the only definition; the executor,
// the checker and the cost model use it, so they agree on what may overlap.
#pragma once

#include "collectives/schedule.h"

namespace hdt::collectives {

// A range of an area that a step reads or writes, in elements. Length 0: none.
struct Access {
  Area area = Area::kInput;
  uint64_t offset = 0;
  uint64_t length = 0;
  bool overlaps(const Access& other) const {
    return area == other.area && offset < other.offset + other.length && other.offset < offset + length;
  }
};

// True for the steps that wait for a peer's payload.
constexpr bool is_receive(const Step& step) {
  return step.kind == StepKind::kRecv || step.kind == StepKind::kRecvReduce;
}

// The range that a step reads and writes of the slot's areas; length 0 if it does not. Scratch that the
// payload of a kRecvReduce lands in is left out, because no other step of a schedule uses that stretch (the
// checker proves it).
inline Access read_by(const Step& step) {
  return step.kind == StepKind::kRecv ? Access{} : Access{step.from, step.offset, step.length};
}
inline Access written_by(const Step& step) {
  if (step.kind == StepKind::kSend) return {};
  return {step.to, step.to == Area::kScratch ? step.target : step.offset, step.length};
}
// The contributions that a kReduce combines, which earlier receives have put there.
inline Access scratch_read_by(const Step& step) {
  if (step.kind != StepKind::kReduce) return {};
  return {Area::kScratch, step.target, step.length * static_cast<uint64_t>(step.gathered)};
}

// True if `later` may not start before `earlier`, which comes before it in the list, is complete: one of
// them writes what the other reads or writes. A step of length 0 conflicts with nothing by this rule, so
// signals have one of their own: a send waits for every earlier receive. That is all a barrier needs.
inline bool conflicts(const Step& earlier, const Step& later) {
  if (later.length == 0) return later.kind == StepKind::kSend && is_receive(earlier);
  const Access write = written_by(later);
  const Access earlier_write = written_by(earlier);
  return write.overlaps(earlier_write) || write.overlaps(read_by(earlier)) ||
         read_by(later).overlaps(earlier_write) || scratch_read_by(later).overlaps(earlier_write);
}

}  // namespace hdt::collectives
