// thread_group.h: a group of ranks that are threads of the test, so that the benchmark can be driven without
// libhdt, and damaged on purpose.
#pragma once

#include <barrier>
#include <functional>
#include <vector>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

class ThreadGroup {
 public:
  // Called on each rank after each collective with what it may spoil.
  using Fault = std::function<void(int rank, const Call& call)>;

  explicit ThreadGroup(int ranks, Fault fault = nullptr);

  // Runs `body` on every rank, each in a thread of its own.
  void run(const std::function<void(Communicator&)>& body);

 private:
  class Member;

  int ranks_;
  Fault fault_;
  std::barrier<> barrier_;
  std::vector<const Call*> calls_;
  std::vector<const void*> gathered_;
};

}  // namespace hdt::bench
