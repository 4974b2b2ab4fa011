// placement.h: gives devices of nodes to stages: each stage goes to the first node of its kind, in the order
// of the cluster, that has enough devices left. So stages that are placed one after the other are neighbours.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "training/plan/describe/cluster.h"

namespace hdt::plan {

class Placement {
 public:
  explicit Placement(const Cluster& cluster);

  // Takes `devices` of one node of the kind (an index into Cluster::node_kinds); nothing when no node has
  // them.
  std::optional<std::string> take(int kind, int devices);

 private:
  struct Place {
    const Node* node = nullptr;
    int left = 0;
  };
  std::vector<std::vector<Place>> places_;  // by kind
  std::vector<size_t> first_;               // by kind: the places before it are full
};

}  // namespace hdt::plan
