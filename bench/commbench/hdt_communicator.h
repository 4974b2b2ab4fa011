// hdt_communicator.h: a Communicator on libhdt. It also carries the bookkeeping of the other engines.
#pragma once

#include "bench/commbench/communicator.h"
#include "hdt/hdt.h"

namespace hdt::bench {

// This rank's communicator of all ranks of the job.
class HdtCommunicator : public Communicator {
 public:
  // Joins the group for which this process was started (hdtCommInit). `timeout_s` is the deadline of
  // joining and of every operation; `hdt_memory` says whether allocate() takes memory of hdtMemAlloc.
  static Result<std::unique_ptr<HdtCommunicator>> join(int64_t timeout_s, bool hdt_memory);
  ~HdtCommunicator() override;
  HdtCommunicator(const HdtCommunicator&) = delete;
  HdtCommunicator& operator=(const HdtCommunicator&) = delete;

  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  // The functions of Communicator, each by one call of hdt.h. Errors have the library's code and
  // message.
  int node_of(int rank) const override;
  Status run(const Call& call) override;
  Status barrier() override;
  Status gather_all(const void* send, size_t bytes, void* recv) override;
  Result<Memory> allocate(size_t bytes) override;

 private:
  HdtCommunicator(hdtComm_t comm, int rank, int ranks, bool hdt_memory)
      : comm_(comm), rank_(rank), ranks_(ranks), hdt_memory_(hdt_memory) {}

  hdtComm_t comm_;
  int rank_;
  int ranks_;
  // Whether allocate() takes memory of hdtMemAlloc.
  bool hdt_memory_;
};

}  // namespace hdt::bench
