// tuner_fixture.h: groups and calls for the tests of the tuner.
#pragma once

#include <numeric>
#include <vector>

#include "ipc/partition.h"

namespace hdt::daemon {

inline ipc::Order one_rank_each(uint32_t nodes) {
  std::vector<uint32_t> node_of_rank(nodes);
  std::iota(node_of_rank.begin(), node_of_rank.end(), 0U);
  return ipc::Order(node_of_rank, nodes);
}

inline ipc::Call call_of(collectives::Collective what, uint64_t count) {
  ipc::Call call;
  call.what = what;
  call.type = collectives::DataType::kFloat32;
  call.count = count;
  return call;
}

}  // namespace hdt::daemon
