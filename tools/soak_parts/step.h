// step.h: one step of a job that looks like training: activations and gradients along the pipeline,
// gradients summed over replicas while other sums are under way, sharded optimizer states, small sums
// within a node. Every result is compared bit for bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "hdt/hdt.h"
#include "tools/soak_parts/groups.h"
#include "tools/soak_parts/pauses.h"

namespace hdt::soak {

// Runs the steps of one rank. Used by one thread. `groups` must outlive it, and may be made anew between
// steps.
class Step {
 public:
  // Allocates the memory of all areas. `seed` is that of the whole job, and must be the same on all
  // ranks.
  Step(Groups& groups, uint64_t seed);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Runs step `number`. In: whether this rank wants the job to pause; out: whether any rank does. False:
  // the operation `failed_in` has failed, and the step is not complete.
  bool run(uint64_t number, bool& stop);

  // Totals of all steps: completed operations, their bytes, and wrong results.
  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t wrong = 0;
  // The operation that failed, its code and its message.
  std::string failed_in;
  hdtResult_t failure = HDT_SUCCESS;
  std::string failure_text;

 private:
  // Calls that may be under way together; each has an area of its own.
  static constexpr size_t kAreas = 4;
  // Input and output of one call.
  struct Area {
    std::byte* in;
    std::byte* out;
  };
  // An operation under way.
  struct Call {
    std::string name;
    size_t bytes;
    hdtRequest_t request;
    int64_t begin_ns;
    // Compares the result, when all calls have ended.
    std::function<bool()> right;
  };
  using Start = std::function<hdtResult_t(hdtRequest_t*)>;

  // The parts of a step, in this order. Each returns false if an operation has failed.
  bool within_node();
  // Activations (forward) or gradients.
  bool along_pipeline(bool forward);
  bool across_replicas();
  bool among_all();
  // Whether any rank wants to pause. The last operation of every step.
  bool agree(bool& stop);

  // Begins a call, which finish_all() completes.
  bool issue(const std::string& name, size_t bytes, const Start& start, std::function<bool()> right);
  // Waits for all calls, then compares their results.
  bool finish_all();
  // Begins a call and completes it.
  bool one(const std::string& name, size_t bytes, const Start& start, std::function<bool()> right);
  // Notes the failure, and waits for the other calls, whose buffers must not be used any more. Returns
  // false.
  bool failed(const std::string& name, hdtResult_t result);
  // The keys of what each of these ranks contributes to a call of this step.
  std::vector<uint64_t> keys(uint64_t group, const std::vector<int>& ranks, uint64_t call) const;
  // The key of what `rank` contributes to a call of this step in a group.
  uint64_t key(uint64_t group, int rank, uint64_t call) const;
  // Elements of a call of about `bytes` bytes.
  size_t count_of(size_t bytes, hdtDataType_t type) const;

  Groups& groups_;
  uint64_t seed_;
  // The step that is running.
  uint64_t number_ = 0;
  // Ordinary memory of all areas, and the same of hdtMemAlloc, which is null if there is none.
  std::vector<std::byte> plain_;
  std::byte* shared_ = nullptr;
  // The areas of this step, all of them in one of the two.
  std::vector<Area> areas_;
  std::vector<Call> calls_;
  Pauses pauses_;
};

}  // namespace hdt::soak
