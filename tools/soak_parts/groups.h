// groups.h: the groups that a rank of the job is in: all ranks (class all), the ranks of its node (class
// tp), one rank of each node (class dp), and the pipeline (class pp), which is all ranks again.
#pragma once

#include <string>
#include <vector>

#include "hdt/hdt.h"

namespace hdt::soak {

// A rank's groups. Used by one thread. A group that could not be made is null.
class Groups {
 public:
  Groups() = default;
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // Both make all groups anew, in place of the earlier ones. They return HDT_SUCCESS or the error of the
  // call that failed; the message is hdtGetLastError's. join() makes the group of all ranks from an id;
  // shrink() makes it from the present one without the `excluded` ranks. All members of the new group must
  // call them.
  hdtResult_t join(int ranks, int rank, const hdtUniqueId_t& id);
  hdtResult_t shrink(const std::vector<int>& excluded);
  // Destroys all groups.
  void leave();
  // Aborts the groups besides `all`. This rank will make no more calls in them, so the operations of
  // ranks that wait for it there must end.
  void abort_parts();

  // The groups. Null: not made, or left.
  hdtComm_t all = nullptr;
  hdtComm_t node = nullptr;
  hdtComm_t across = nullptr;
  hdtComm_t pipeline = nullptr;
  // This rank's number in `all`, and the number of its ranks. They change with each join() and shrink().
  int rank = 0;
  int size = 0;
  // The members of `node` and `across`, as ranks of `all`.
  std::vector<int> node_ranks, across_ranks;

 private:
  // Makes the other groups from `all`.
  hdtResult_t split();
  // Destroys the groups besides `all`.
  void leave_parts();
};

}  // namespace hdt::soak
