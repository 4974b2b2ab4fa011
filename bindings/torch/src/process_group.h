// process_group.h: HDT as a backend of torch.distributed. It passes what torch asks for to libhdt's C
// interface and has no algorithm of its own.
//
// Interfaces of torch: up to 2.0 a backend is a c10d::ProcessGroup, from 2.1 on a c10d::Backend. What differs
// between versions is in the few lines below that look at HDT_TORCH_*; the rest is one source.
#pragma once

#include <torch/csrc/api/include/torch/version.h>

#include <memory>
#include <string>
#include <vector>

#include "operation.h"

#define HDT_TORCH_AT_LEAST(major, minor) \
  (TORCH_VERSION_MAJOR > (major) || (TORCH_VERSION_MAJOR == (major) && TORCH_VERSION_MINOR >= (minor)))

#if HDT_TORCH_AT_LEAST(2, 1)
#define HDT_TORCH_HAS_BACKEND 1
#include <torch/csrc/distributed/c10d/Backend.hpp>
#else
#define HDT_TORCH_HAS_BACKEND 0
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace hdt_torch {

#if HDT_TORCH_HAS_BACKEND
using BackendBase = c10d::Backend;
#else
using BackendBase = c10d::ProcessGroup;
#endif
using WorkRef = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

// The settings of a new group: those that torch.distributed passes, and the user's choices for HDT.
struct GroupOptions {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0;
  int size = 1;
  // Deadline of making the group and of every operation on it.
  Milliseconds timeout{0};
  // A class of the daemon's configuration; "": the default.
  std::string group_class;
  bool deterministic = false;
};

// One group of ranks. Functions may be called from any thread, without Python's lock held; collectives are
// ordered by their calls. All of them throw (RuntimeError in Python) if the call is wrong or the group has
// failed; what fails later is thrown by the Work's wait(). A Work keeps its tensors until it is done.
//
// Tensors are dense and in host memory. Those that are not contiguous are sent from a copy, and received into
// one that is copied back at the end. Tags are ignored: messages between two ranks match in call order.
class ProcessGroupHDT : public BackendBase {
 public:
  // Ranks meet through the store: rank 0 puts libhdt's unique id there. Blocks until all have joined.
  explicit ProcessGroupHDT(const GroupOptions& options);
  // Waits for this rank's operations, at most until their deadline.
  ~ProcessGroupHDT() override;

  const std::string getBackendName() const override { return "hdt"; }

  WorkRef broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkRef allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkRef allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkRef reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkRef allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkRef _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkRef allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkRef gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkRef scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkRef reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkRef _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkRef alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  // Splits are in rows of the tensors' first dimension; empty: equal ones.
  WorkRef alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkRef send(Tensors& tensors, int to, int tag) override;
  WorkRef recv(Tensors& tensors, int from, int tag) override;
  // Refused: libhdt has no receive from any rank.
  WorkRef recvAnysource(Tensors& tensors, int tag) override;
  WorkRef barrier(const c10d::BarrierOptions& options) override;
  // By the store, so that rank 0 can name the ranks that have not come, and the group goes on without harm.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // The calls between these two of one thread are one group of libhdt (hdtGroupStart, hdtGroupEnd): none of
  // them waits for another. Each has a Work of its own.
  void startCoalescing() override;
#if HDT_TORCH_HAS_BACKEND
  WorkRef endCoalescing() override;
#else
  void endCoalescing(std::vector<WorkRef>& works) override;
#endif

  // Collectives that this rank has begun: from 0, counted by every rank for itself.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return collectives_; }

 private:
  class Call;

  const c10::intrusive_ptr<c10d::Store> store_;
  const Milliseconds timeout_;
  std::shared_ptr<Group> group_;
  std::atomic<uint64_t> collectives_{0};
  // How many monitored barriers this rank has been in: the same on all ranks.
  std::atomic<uint64_t> monitored_barriers_{0};
};

}  // namespace hdt_torch
