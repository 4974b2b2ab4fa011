// placement.h: gives the devices of nodes to stages. Each stage goes to the first node of its kind, in
// the order of the cluster, that has enough devices left. So stages that are placed one after the other
// are on one node or on neighbours.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "training/plan/describe/cluster.h"

namespace hdt::plan {

// The devices of a cluster that are still free. One object serves one plan; the cluster must outlive it.
class Placement {
 public:
  explicit Placement(const Cluster& cluster);

  // Takes `devices` devices on one node of the kind (an index into Cluster::node_kinds()) and returns
  // the node's name. Nothing if no node of the kind has so many left.
  std::optional<std::string> take(int kind, int devices);

 private:
  // A node and how many of its devices are left.
  struct Place {
    const Node* node = nullptr;
    int left = 0;
  };
  std::vector<std::vector<Place>> places_;  // by kind
  // By kind: the places before this index are full. It makes placing thousands of stages linear.
  std::vector<size_t> first_;
};

}  // namespace hdt::plan
