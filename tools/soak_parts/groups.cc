// groups.cc: makes and destroys the groups. All ranks compute the same colours, from the node of each
// rank.
#include "tools/soak_parts/groups.h"

namespace hdt::soak {

namespace {

// Longer than any fault lasts, so an operation that ends at its deadline was lost.
constexpr int64_t kDeadlineMs = 120'000;

// The class decides over which backends and NICs a group goes.
hdtCommConfig_t config_of(const char* group_class) {
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  config.group_class = group_class;
  config.timeout_ms = kDeadlineMs;
  return config;
}

void destroy(hdtComm_t& comm) {
  if (comm != nullptr) hdtCommDestroy(comm);
  comm = nullptr;
}

}  // namespace

Groups::~Groups() { leave(); }

// In the reverse of the order in which they were made.
void Groups::leave_parts() {
  for (hdtComm_t* comm : {&pipeline, &across, &node}) destroy(*comm);
}

void Groups::leave() {
  leave_parts();
  // Only now: the shrinking needs the earlier group.
  destroy(all);
}

void Groups::abort_parts() {
  for (hdtComm_t comm : {pipeline, across, node}) {
    if (comm != nullptr) hdtCommAbort(comm);
  }
}

hdtResult_t Groups::join(int ranks, int own_rank, const hdtUniqueId_t& id) {
  leave();
  const hdtCommConfig_t config = config_of("all");
  const hdtResult_t result = hdtCommInitRank(&all, ranks, id, own_rank, &config);
  return result == HDT_SUCCESS ? split() : result;
}

hdtResult_t Groups::shrink(const std::vector<int>& excluded) {
  leave_parts();
  hdtComm_t smaller = nullptr;
  const hdtCommConfig_t config = config_of("all");
  const hdtResult_t result =
      hdtCommShrink(all, excluded.data(), static_cast<int>(excluded.size()), &smaller, &config);
  if (result != HDT_SUCCESS) return result;
  destroy(all);
  all = smaller;
  return split();
}

// 1. Find where each rank is: its node, and its place on the node.
// 2. Find the members of this rank's groups. The steps need the members to compute what results must be.
// 3. Make the three groups. All ranks make them in this order.
hdtResult_t Groups::split() {
  hdtResult_t result = hdtCommUserRank(all, &rank);
  if (result == HDT_SUCCESS) result = hdtCommCount(all, &size);
  std::vector<int> node_of(static_cast<size_t>(size));
  // By rank: its index among the ranks of its node. Ranks with the same place form a group across the
  // nodes.
  std::vector<int> place(static_cast<size_t>(size));
  for (int other = 0; other < size && result == HDT_SUCCESS; ++other) {
    result = hdtCommNodeOf(all, other, &node_of[static_cast<size_t>(other)]);
    for (int before = 0; before < other; ++before) {
      if (node_of[static_cast<size_t>(before)] == node_of[static_cast<size_t>(other)])
        ++place[static_cast<size_t>(other)];
    }
  }
  if (result != HDT_SUCCESS) return result;
  node_ranks.clear();
  across_ranks.clear();
  const auto own = static_cast<size_t>(rank);
  for (int other = 0; other < size; ++other) {
    const auto at = static_cast<size_t>(other);
    if (node_of[at] == node_of[own]) node_ranks.push_back(other);
    if (place[at] == place[own]) across_ranks.push_back(other);
  }
  const auto one = [this](int color, const char* group_class, hdtComm_t* made) {
    const hdtCommConfig_t config = config_of(group_class);
    return hdtCommSplit(all, color, rank, made, &config);
  };
  result = one(node_of[own], "tp", &node);
  if (result == HDT_SUCCESS) result = one(place[own], "dp", &across);
  if (result == HDT_SUCCESS) result = one(0, "pp", &pipeline);
  return result;
}

}  // namespace hdt::soak
