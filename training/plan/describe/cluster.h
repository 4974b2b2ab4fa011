// cluster.h: the machines a plan may use.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::plan {

// A kind of NIC, and how hdtcommd reaches others over it.
struct NicKind {
  std::string name;
  std::vector<std::string> backends;    // best first
  std::vector<std::string> interfaces;  // names, addresses or patterns, as in hdtcommd's configuration
};

// One machine. Its devices share its network ports.
struct Node {
  std::string name;
  std::string device;  // the kind of its devices, as the profile names it
  int devices = 1;
  int64_t memory_bytes = 0;  // of each device
  // Kinds, in the order of Cluster::nics. None on any node: one network, as the profile has it.
  std::vector<std::string> nics = {};

  // What tells nodes apart for a plan: "a100", or with NICs "a100@roce+ethernet".
  std::string kind() const;
};

bool same_kind(const Node& a, const Node& b);

struct Cluster {
  std::vector<Node> nodes;
  std::vector<NicKind> nics = {};  // best first: two nodes talk over the first that both have

  int index_of(const std::string& node) const;  // -1: there is none
  // The device kinds, in the order of their first node.
  std::vector<std::string> device_kinds() const;
  // The first node of each kind, in their order.
  std::vector<Node> node_kinds() const;
  // Index into `nics`, 0 if there are none; -1: the nodes have none in common.
  int nic_between(const Node& from, const Node& to) const;
  // Networks that a node may be in: the NIC kinds, or one.
  int num_networks() const { return nics.empty() ? 1 : static_cast<int>(nics.size()); }
};

// Index of the node's kind among node_kinds().
size_t kind_index(const std::vector<Node>& kinds, const Node& node);

// The order that keeps that of each list, the first lists first; nothing if they contradict each other.
std::optional<std::vector<std::string>> merged_preferences(std::vector<std::vector<std::string>> lists);

Status check_cluster(const Cluster& cluster);

}  // namespace hdt::plan
