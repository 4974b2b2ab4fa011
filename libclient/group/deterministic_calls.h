// deterministic_calls.h: reductions of a group of several nodes whose bits depend on nothing but the
// contributions and their order by rank. Every element is combined by one rank, from all ranks'
// contributions as they are, from left to right and rounded once (collectives/kernels.h), as a group of
// one node does it in any case. So it does not matter how ranks sit on nodes, how a message is cut,
// which algorithm would have run, or how many NICs there are.
//
// It costs bytes: a rank sends all of its contribution and receives its share (ranks - 1) times, where
// partial sums would be sent otherwise. That is about half the number of ranks of a node more.
//
// Calls are sends and receives on a communicator of their own (the *ring*), made by one thread in
// call order. So they match those of the other ranks, whatever else is under way.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"
#include "ipc/call.h"
#include "libclient/common/operation.h"

namespace hdt::client {

class Communicator;

// Owned by the Communicator whose reductions it makes. Its thread runs from start() until the
// destructor.
class DeterministicCalls {
 public:
  // `ring`: a communicator over the same ranks, used by nobody else. `completed` is called after each
  // operation is complete, with how it ended, on this object's thread.
  DeterministicCalls(std::shared_ptr<Communicator> ring, std::function<void(const Status&)> completed);
  // Starts the thread. kSystem: the system refuses it. To be called once, before the first call.
  Status start();
  // All calls must be complete: see finish(). Waits for the thread to end.
  ~DeterministicCalls();

  // Appends a reducing call. The buffers must stay valid until the operation is complete. Any thread;
  // the order of the pushes is the order of the calls.
  void push(const ipc::Call& call, const void* send, void* recv, std::shared_ptr<Operation> operation);
  // Waits until all calls are complete. Each call ends at the ring's deadline at the latest. Any thread.
  void drain();
  // drain(), and leaves the ring.
  void finish();
  // The deadline of the ring's operations that begin from now on, in ms. Any thread.
  void set_timeout(int64_t ms);
  // Ends what is under way, here and on all ranks, with `why`.
  void fail(const Status& why);

 private:
  // One call.
  struct Task {
    ipc::Call call;
    const std::byte* send;
    std::byte* recv;
    std::shared_ptr<Operation> operation;
  };
  // Elements [first, first + count) of a rank's buffer.
  struct Range {
    uint64_t first;
    uint64_t count;
  };

  // The thread.
  void run();
  // One call to its end, in the ring.
  Status run_call(const Task& task);
  Status all_reduce(const Task& task);
  Status reduce_scatter(const Task& task);
  // Sends each rank the part of this rank's sendbuf that it combines, `part_of(rank)`, receives
  // everyone's contribution to this rank's own part, and combines them into `result`.
  Status combine(const Task& task, const std::function<Range(uint32_t)>& part_of, std::byte* result);
  // Hands this rank's result, which is part_of(own rank) of the whole, to all ranks that need it, and
  // receives theirs.
  Status distribute(const Task& task, const std::function<Range(uint32_t)>& part_of, const std::byte* result);
  // Waits for everything in posted_, and returns the first failure.
  Status wait_for_all();

  const std::shared_ptr<Communicator> ring_;
  const std::function<void(const Status&)> completed_;
  // Guards the following three.
  std::mutex mutex_;
  std::condition_variable changed_;
  // The first is under way; it is removed when it is complete, so an empty list means that nothing is
  // pending.
  std::deque<Task> tasks_;
  bool stop_ = false;
  // Used by the thread alone, and kept from call to call: the other ranks' contributions, this rank's
  // result where the recvbuf cannot hold it, and the sends and receives under way.
  std::vector<std::byte> received_;
  std::vector<std::byte> share_;
  std::vector<std::shared_ptr<Operation>> posted_;
  // The reason why the first of them could not be submitted.
  Status refused_;
  std::thread thread_;
};

}  // namespace hdt::client
