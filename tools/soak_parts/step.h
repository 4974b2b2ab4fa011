// step.h: one step of a job that looks like training: activations and gradients along the pipeline, gradients
// summed over replicas while others are under way, sharded optimizer states, small sums within a node. Every
// result is compared.
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

class Step {
 public:
  Step(Groups& groups, uint64_t seed);
  ~Step();
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  // Runs step `number`. `stop`: this rank wants the job to pause; afterwards whether any does. False:
  // `failed_in` failed.
  bool run(uint64_t number, bool& stop);

  uint64_t operations = 0;
  uint64_t bytes = 0;
  uint64_t wrong = 0;
  std::string failed_in;
  hdtResult_t failure = HDT_SUCCESS;
  std::string failure_text;

 private:
  static constexpr size_t kAreas = 4;
  struct Area {
    std::byte* in;
    std::byte* out;
  };
  struct Call {
    std::string name;
    size_t bytes;
    hdtRequest_t request;
    int64_t begin_ns;
    std::function<bool()> right;
  };
  using Start = std::function<hdtResult_t(hdtRequest_t*)>;

  bool within_node();
  bool along_pipeline(bool forward);
  bool across_replicas();
  bool among_all();
  bool agree(bool& stop);

  // Issues a call, to be completed by finish_all().
  bool issue(const std::string& name, size_t bytes, const Start& start, std::function<bool()> right);
  bool finish_all();
  bool one(const std::string& name, size_t bytes, const Start& start, std::function<bool()> right);
  bool failed(const std::string& name, hdtResult_t result);
  std::vector<uint64_t> keys(uint64_t group, const std::vector<int>& ranks, uint64_t call) const;
  uint64_t key(uint64_t group, int rank, uint64_t call) const;
  size_t count_of(size_t bytes, hdtDataType_t type) const;

  Groups& groups_;
  uint64_t seed_;
  uint64_t number_ = 0;
  std::vector<std::byte> plain_;
  std::byte* shared_ = nullptr;
  std::vector<Area> areas_;
  std::vector<Call> calls_;
  Pauses pauses_;
};

}  // namespace hdt::soak
