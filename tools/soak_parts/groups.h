// groups.h: the groups that a rank of the job is in: all ranks, those of its node (class tp), one of each
// node (class dp), and the pipeline (class pp), which is all ranks again.
#pragma once

#include <string>
#include <vector>

#include "hdt/hdt.h"

namespace hdt::soak {

class Groups {
 public:
  Groups() = default;
  ~Groups();
  Groups(const Groups&) = delete;
  Groups& operator=(const Groups&) = delete;

  // Each makes all groups, in place of those before. HDT_SUCCESS, or why not; the words are
  // hdtGetLastError's.
  hdtResult_t join(int ranks, int rank, const hdtUniqueId_t& id);
  hdtResult_t shrink(const std::vector<int>& excluded);
  void leave();
  // Ends what other ranks do in groups whose members all live: this one will not come any more.
  void abort_parts();

  hdtComm_t all = nullptr;
  hdtComm_t node = nullptr;
  hdtComm_t across = nullptr;
  hdtComm_t pipeline = nullptr;
  int rank = 0;
  int size = 0;
  std::vector<int> node_ranks, across_ranks;  // members as ranks of `all`

 private:
  hdtResult_t split();
  void leave_parts();
};

}  // namespace hdt::soak
