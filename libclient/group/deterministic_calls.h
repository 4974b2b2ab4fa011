// deterministic_calls.h: reductions of a group of several nodes whose bits depend on nothing but the
// contributions and their order by rank: every element is combined by one rank, from all ranks' contributions
// as they are, from left to right and rounded once (collectives/kernels.h), as a group of one node does it in
// any case. So it does not matter how ranks sit on nodes, how a message is cut, which algorithm would have
// been taken, or how many NICs there are.
//
// It costs bytes: a rank sends all of its contribution and receives as much for its share (ranks - 1) times,
// where partial sums would be sent otherwise: about half the number of ranks of a node more.
//
// Calls are sends and receives on a communicator of their own, made by one thread in call order: so they
// match those of the other ranks whatever else is under way.
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

class DeterministicCalls {
 public:
  // `channel`: a communicator over the same ranks, used by nobody else. `completed` is called after each
  // operation is, with how it ended.
  DeterministicCalls(std::shared_ptr<Communicator> channel, std::function<void(const Status&)> completed);
  // Starts its thread, which the system may refuse: before the first call.
  Status start();
  ~DeterministicCalls();  // all calls are complete by then: see finish()

  // A reducing call. Any thread, one at a time.
  void push(const session::Call& call, const void* send, void* recv, std::shared_ptr<Operation> operation);
  // Waits until all calls are complete, and leaves the channel.
  void finish();
  // Ends what is under way, here and on all ranks.
  void abort();

 private:
  struct Task {
    session::Call call;
    const std::byte* send;
    std::byte* recv;
    std::shared_ptr<Operation> operation;
  };
  // Elements [first, first + count) of a rank's buffer.
  struct Range {
    uint64_t first;
    uint64_t count;
  };

  void run();
  Status run_call(const Task& task);
  Status all_reduce(const Task& task);
  Status reduce_scatter(const Task& task);
  // Sends each rank what it combines of this rank's sendbuf, `part_of(rank)`, and combines the own part into
  // `result`.
  Status combine(const Task& task, const std::function<Range(uint32_t)>& part_of, std::byte* result);
  // Hands this rank's result, which is part_of(own rank) of the whole, to all who need it, and receives
  // theirs.
  Status distribute(const Task& task, const std::function<Range(uint32_t)>& part_of, const std::byte* result);
  Status wait_for_all();

  const std::shared_ptr<Communicator> channel_;
  const std::function<void(const Status&)> completed_;
  std::mutex mutex_;  // guards the following three
  std::condition_variable changed_;
  std::deque<Task> tasks_;  // the first is under way
  bool stop_ = false;
  // Of the thread alone:
  std::vector<std::byte> received_;  // contributions of the other ranks
  std::vector<std::byte> share_;     // this rank's result
  std::vector<std::shared_ptr<Operation>> posted_;
  Status refused_;  // the first of them that could not be posted
  std::thread thread_;
};

}  // namespace hdt::client
