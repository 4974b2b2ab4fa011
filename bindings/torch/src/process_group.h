// process_group.h: HDT as a backend of torch.distributed. It passes what torch asks for to libhdt's C
// interface and has no algorithm of its own.
//
// Interfaces of torch: up to 2.0 a backend is a c10d::ProcessGroup, from 2.1 on a c10d::Backend. The few
// lines below that look at HDT_TORCH_* differ between versions, and so does process_group_2.cc, which has
// what only a c10d::Backend has; the rest is one source.
#pragma once

#include <c10/util/StringUtil.h>
#include <torch/csrc/api/include/torch/version.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "handle.h"
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

// Collectives of one tensor have new names in the Backend that has hooks (seen in 2.14). The old ones are
// deprecated there: they lead to the new ones.
#ifdef C10D_BACKEND_HAS_HOOKS
#define HDT_TORCH_HAS_SINGLE 1
#define HDT_TORCH_ALL_GATHER_SINGLE all_gather_single
#define HDT_TORCH_ALL_GATHER_COALESCED all_gather_single_coalesced
#define HDT_TORCH_REDUCE_SCATTER_SINGLE reduce_scatter_single
#define HDT_TORCH_REDUCE_SCATTER_COALESCED reduce_scatter_single_coalesced
#define HDT_TORCH_ALL_TO_ALL_SINGLE all_to_all_single
#else
#define HDT_TORCH_HAS_SINGLE 0
#define HDT_TORCH_ALL_GATHER_SINGLE _allgather_base
#define HDT_TORCH_ALL_GATHER_COALESCED allgather_into_tensor_coalesced
#define HDT_TORCH_REDUCE_SCATTER_SINGLE _reduce_scatter_base
#define HDT_TORCH_REDUCE_SCATTER_COALESCED reduce_scatter_tensor_coalesced
#define HDT_TORCH_ALL_TO_ALL_SINGLE alltoall_base
#endif

// A Backend can be made anew of other ranks (seen in 2.14).
#ifdef C10D_BACKEND_HAS_RECONFIGURE
#define HDT_TORCH_HAS_RECONFIGURE 1
#else
#define HDT_TORCH_HAS_RECONFIGURE 0
#endif

// A Work tells how it went as a number, too (seen in 2.6).
#define HDT_TORCH_HAS_WORK_RESULT HDT_TORCH_AT_LEAST(2, 6)

// torch keeps Works by their tensors for wait_tensor(). It or Work::wait() takes them out (seen in 2.6).
#define HDT_TORCH_HAS_WORK_REGISTRY HDT_TORCH_AT_LEAST(2, 6)

namespace hdt_torch {

#if HDT_TORCH_HAS_BACKEND
using BackendBase = c10d::Backend;
#else
using BackendBase = c10d::ProcessGroup;
#endif
using WorkRef = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<Tensors>;

// Throws Failure with the text that `words` make, unless `holds`.
template <typename... Words>
void require(bool holds, const Words&... words) {
  if (!holds) throw Failure(c10::str("hdt: ", words...));
}

// A text as a value of a c10d::Store.
inline std::vector<uint8_t> bytes_of(const std::string& text) { return {text.begin(), text.end()}; }
inline std::string text_of(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// The text of an exception, without the backtrace that torch appends to its own.
inline std::string words_of(const std::exception& failure) {
  const auto* const of_torch = dynamic_cast<const c10::Error*>(&failure);
  return of_torch != nullptr ? of_torch->what_without_backtrace() : failure.what();
}

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
  // torch's name of the group, and the ranks' numbers in the job; both may be empty.
  std::string name;
  std::vector<uint64_t> global_ranks;

  // The same for libhdt. It refers to group_class.
  hdtCommConfig_t config() const;
  // The number in the job of a rank of this group.
  uint64_t global_rank(int of) const {
    const auto index = static_cast<size_t>(of);
    return index < global_ranks.size() ? global_ranks[index] : index;
  }
};

// Joins a group of the options' size as their rank, after meet() has said which. Blocks until all have come.
hdtComm_t join(const GroupOptions& options, const std::function<hdtUniqueId_t()>& meet);

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
  // Takes over a communicator of libhdt, which has the options' rank and size. Null: there is no group until
  // reconfigure() makes it, and calls that need one throw.
  ProcessGroupHDT(const GroupOptions& options, hdtComm_t comm);
  // Waits for this rank's operations, at most until their deadline.
  ~ProcessGroupHDT() override;

  const std::string getBackendName() const override { return "hdt"; }

  WorkRef broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkRef allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkRef allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkRef reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkRef allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkRef HDT_TORCH_ALL_GATHER_SINGLE(at::Tensor& output, at::Tensor& input,
                                      const c10d::AllgatherOptions& options) override;
  WorkRef allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkRef gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkRef scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& options) override;
  WorkRef reduce_scatter(Tensors& outputs, TensorLists& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkRef HDT_TORCH_REDUCE_SCATTER_SINGLE(at::Tensor& output, at::Tensor& input,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkRef alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  // Splits are in rows of the tensors' first dimension; empty: equal ones.
  WorkRef HDT_TORCH_ALL_TO_ALL_SINGLE(at::Tensor& output, at::Tensor& input,
                                      std::vector<int64_t>& output_splits, std::vector<int64_t>& input_splits,
                                      const c10d::AllToAllOptions& options) override;
  WorkRef send(Tensors& tensors, int to, int tag) override;
  WorkRef recv(Tensors& tensors, int from, int tag) override;
  // The message that comes first; the Work names its sender (sourceRank()).
  WorkRef recvAnysource(Tensors& tensors, int tag) override;
  WorkRef barrier(const c10d::BarrierOptions& options) override;
  // By the store, so that rank 0 can name the ranks that have not come, and the group goes on without harm.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  // The calls between these two of one thread are one group of libhdt (hdtGroupStart, hdtGroupEnd): none of
  // them waits for another. Each has a Work of its own; a Backend's end returns one of all of them.
  void startCoalescing() override;
#if HDT_TORCH_HAS_BACKEND
  WorkRef endCoalescing() override;

  // outputs[k] is inputs[k] of all ranks, one after the other.
  WorkRef HDT_TORCH_ALL_GATHER_COALESCED(Tensors& outputs, Tensors& inputs,
                                         const c10d::AllgatherOptions& options) override;
  WorkRef HDT_TORCH_REDUCE_SCATTER_COALESCED(Tensors& outputs, Tensors& inputs,
                                             const c10d::ReduceScatterOptions& options) override;
#if HDT_TORCH_HAS_SINGLE
  WorkRef gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
  // Why the group has failed, if it has. Does not block.
  c10d::ErrorType getError() override;
  // A hook is called once, as soon as a thread of this rank finds that the group has failed, before its call
  // throws, or before this rank aborts the group. The hook may throw: that is a warning.
  void registerAbortHook(int64_t id, c10d::AbortHook hook) override;
  void unregisterAbortHook(int64_t id) override;
#endif
#if HDT_TORCH_HAS_RECONFIGURE
  bool supportsReconfigure() const override { return true; }
  // This rank, and where ranks can meet it: the daemon that it has at the time of the call. Blocks for as
  // long as the daemon takes to answer.
  c10d::ReconfigureHandle get_reconfigure_handle() const override;
  // Makes this group one of the ranks of the handles. All of them call it with the same handles and the same
  // uuid, which this rank has not used before; they meet at the daemon of the first handle. The order of a
  // list is that of the ranks; those of a set get an order that all agree on. Blocks until all have come, so
  // the Work is complete. If it throws, the group is the one that it was. Otherwise the old group is left:
  // operations of this rank that are under way in it are aborted. No other call of this object may be under
  // way.
  WorkRef reconfigure(const c10d::ReconfigureOptions& options) override;
#endif

  // Not all Backends have these, or have them as virtual functions: they override what is there (2.6 has
  // supportsSplitting() alone, 2.14 has all).
  bool supportsCoalescing() const { return true; }
  bool supportsSplitting() const { return HDT_TORCH_HAS_SINGLE != 0; }
  // Fails the group on all ranks.
  void abort() {
    if (const auto group = group_or_null()) group->abort();
  }
  // Waits for this rank's operations, at most until their deadline, and leaves the group.
  void shutdown() {
    if (const auto group = group_or_null()) group->close();
  }
  c10::intrusive_ptr<Options> getBackendOptions();
  bool supportsShrinking() const { return HDT_TORCH_HAS_SINGLE != 0; }
  // without() for torch's dist.shrink_group(). Flag 1: what is under way in this group is aborted before.
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<int64_t>& excluded, int flags,
                                           const c10::intrusive_ptr<Options>& options);
  // The deadline of operations that begin from now on.
  void setTimeout(Milliseconds timeout);
  // A new group of those ranks of this one, which the store knows each other by; null on the others. Without
  // a class of its own ($HDT_CLASS_MAP, by the description in the options) it has this one's.
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& options);
#else
  void endCoalescing(std::vector<WorkRef>& works) override;
#endif

  GroupOptions options() const;
  // The rank that the group's failure is about; -1: none, or no failure. Does not block.
  int failed_rank() const;
  // The communicator of libhdt; it stays this group's.
  hdtComm_t comm() const { return group()->comm(); }
  // How many samples this rank takes in each step, for hdtctl status.
  void set_samples(uint64_t of_a_step) const;
  // A group of this one's ranks without the excluded ones, in their order (hdtCommShrink). This one may have
  // failed, and stays as it is. All that are not excluded call it with the same ranks. Blocks until they have
  // come, at most for the timeout. The new group has no store: it is for calls that need none.
  c10::intrusive_ptr<ProcessGroupHDT> without(const std::vector<int>& excluded, Milliseconds timeout) const;

  // Collectives that this rank has begun: from 0, counted by every rank for itself.
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return collectives_; }

 private:
  class Call;

#if HDT_TORCH_HAS_BACKEND
  // Keeps the work of a call until the end of the batch that this thread has begun, if it has.
  void note_in_batch(const WorkRef& work);
#else
  void note_in_batch(const WorkRef&) {}
#endif

  // This rank's group; throws if there is none yet.
  std::shared_ptr<Group> group() const;
  std::shared_ptr<Group> group_or_null() const;

  // The timeout of operations. Any thread: torch may set it while others wait.
  std::atomic<Milliseconds> timeout_;
  // Guards what is below, which reconfigure() writes.
  mutable std::mutex mutex_;
  // Without a store once the ranks are not those that met there.
  GroupOptions options_;
  std::shared_ptr<Group> group_;
#if HDT_TORCH_HAS_SINGLE
  // By their ids: every group of this object gets them. Shared, as a function of Python is copied and dropped
  // with Python's lock, for which nobody may wait who holds mutex_.
  std::map<int64_t, std::shared_ptr<const c10d::AbortHook>> hooks_;
#endif
#if HDT_TORCH_HAS_RECONFIGURE
  // The uuids that reconfigure() was called with.
  std::set<int64_t> uuids_;
  // Says in handles that they are this object's.
  const std::string token_ = new_token();
#endif
  std::atomic<uint64_t> collectives_{0};
  // How many monitored barriers this rank has been in: the same on all ranks.
  std::atomic<uint64_t> monitored_barriers_{0};
};

}  // namespace hdt_torch
