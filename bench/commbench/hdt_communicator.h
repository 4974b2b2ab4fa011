// hdt_communicator.h: a Communicator on libhdt. It also carries the bookkeeping of the other engines.
#pragma once

#include "bench/commbench/communicator.h"
#include "hdt/hdt.hpp"

namespace hdt::bench {

// This rank's communicator of all ranks of the job.
class HdtCommunicator : public Communicator {
 public:
  // Joins the group for which this process was started (hdtCommInit). `timeout_s` is the deadline of
  // joining and of every operation; `hdt_memory` says whether allocate() takes memory of hdtMemAlloc.
  static Result<std::unique_ptr<HdtCommunicator>> join(int64_t timeout_s, bool hdt_memory);

  int rank() const override { return comm_.rank(); }
  int ranks() const override { return comm_.size(); }
  // The functions of Communicator, each by one call of hdt.hpp. Errors have the library's code and
  // message.
  int node_of(int rank) const override;
  Status run(const Call& call) override;
  Status barrier() override;
  Status gather_all(const void* send, size_t bytes, void* recv) override;
  Result<Memory> allocate(size_t bytes) override;

 private:
  HdtCommunicator(hdt::Communicator comm, bool hdt_memory)
      : comm_(std::move(comm)), hdt_memory_(hdt_memory) {}
  // Throws hdt::Error.
  void make_call(const Call& call);

  hdt::Communicator comm_;
  // Whether allocate() takes memory of hdtMemAlloc.
  bool hdt_memory_;
};

}  // namespace hdt::bench
