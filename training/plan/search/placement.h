// placement.h: gives the devices of nodes to the stages of a plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/plan.h"

namespace hdt::plan {

// Where the stages of a replica go. Gradients are reduced among equal stages of all replicas, and activations
// pass from stage to stage, so each rule keeps one of the two inside nodes where it can.
enum class PlacementRule {
  // Replica by replica, each stage to the first node with room: the stages of a replica share a node, or are
  // on neighbours.
  kNeighbours,
  // Stage by stage, over all replicas with equally many stages: as Megatron numbers ranks by default. Equal
  // stages share nodes, and a pipeline goes across nodes.
  kStageByStage,
  // Replica by replica, each stage to the first node that the replica is not on yet: blocks of as many nodes
  // as a replica has stages, each with the replicas that fit.
  kAcross,
};
inline constexpr PlacementRule kPlacementRules[] = {PlacementRule::kNeighbours, PlacementRule::kStageByStage,
                                                    PlacementRule::kAcross};

// The devices of a cluster that are still free. One object serves one plan; the cluster must outlive it.
class Placement {
 public:
  explicit Placement(const Cluster& cluster);

  // Takes `devices` devices on the first node of the kind (an index into Cluster::node_kinds()), in the order
  // of the cluster, that has so many left, and returns the node's name. Nothing if there is none. Nodes in
  // `avoid` are taken only if no other has room.
  std::optional<std::string> take(int kind, int devices, const std::vector<Stage>* avoid = nullptr);

  // Sets the nodes of all stages by the rule; `kinds` has the kind of each stage of each replica. The stages'
  // degrees must be set. False if there is no room.
  bool place(PlacementRule rule, const std::vector<std::vector<int>>& kinds, Plan& plan);

 private:
  // A node and how many of its devices are left.
  struct Place {
    const Node* node = nullptr;
    int left = 0;
  };
  bool place_by_stage(const std::vector<std::vector<int>>& kinds, Plan& plan);

  std::vector<std::vector<Place>> places_;  // by kind
  // By kind: the places before this index are full. It makes placing thousands of stages linear.
  std::vector<size_t> first_;
};

}  // namespace hdt::plan
