// cluster.h: the machines a plan may use, their devices, and the networks between them. These are values
// that were read from a file; nothing here asks a real machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::plan {

// A kind of NIC, and how hdtcommd reaches other nodes over it. NICs of one kind form one network: two
// nodes that both have the kind can talk over it.
struct NicKind {
  // Chosen by the author of the file. It is the name that nodes, links of the profile and classes of a
  // plan use.
  std::string name;
  std::vector<std::string> backends;    // best first
  std::vector<std::string> interfaces;  // names, addresses or patterns, as in hdtcommd's configuration
};

// One machine. Its devices share its network ports. A cluster is made of few kinds of nodes, see kind().
struct Node {
  std::string name;
  // The kind of its devices, as the profile names it. All devices of a node are of one kind.
  std::string device;
  // At least 1. A stage takes as many of them as its tensor-parallel degree says.
  int devices = 1;
  int64_t memory_bytes = 0;  // of each device
  // Names of NIC kinds, in the order of Cluster::nics. If no node has any, the cluster is one network,
  // with the rates that the profile gives for pairs of device kinds.
  std::vector<std::string> nics = {};

  // The name of the node's kind: "a100", or with NICs "a100@roce+ethernet". Nodes of one kind take the
  // same time for the same work.
  std::string kind() const;
};

// Whether both nodes have the same device kind and the same NIC kinds. The number and the memory of
// their devices are not compared.
bool same_kind(const Node& a, const Node& b);

// All machines. check_cluster() must accept a cluster before anything else uses it.
struct Cluster {
  std::vector<Node> nodes;
  // Best first: two nodes talk over the first kind that both have. All messages and reductions between
  // them use that one.
  std::vector<NicKind> nics = {};

  // Index into `nodes`, or -1 if no node has this name. Searches from the front each time.
  int index_of(const std::string& node) const;
  // The device kinds, in the order of their first node.
  std::vector<std::string> device_kinds() const;
  // The first node of each kind, in the order of these nodes.
  std::vector<Node> node_kinds() const;
  // The kind of NIC that the two nodes talk over, as an index into `nics`. 0 if the cluster names no
  // NICs, -1 if the nodes have no kind in common.
  int nic_between(const Node& from, const Node& to) const;
  // The number of networks that a node may be in: the NIC kinds, or 1 if none are named.
  int num_networks() const { return nics.empty() ? 1 : static_cast<int>(nics.size()); }
};

// Index of the node's kind among `kinds`, which node_kinds() has returned; kinds.size() if its kind is
// not there.
size_t kind_index(const std::vector<Node>& kinds, const Node& node);

// Merges lists of preferences into one list that keeps the order of each of them. Where the lists leave
// the order open, entries of the earlier list come first. Nothing is returned if two lists contradict
// each other. Each list must be free of duplicates.
std::optional<std::vector<std::string>> merged_preferences(std::vector<std::vector<std::string>> lists);

// kConfig, with field and reason, if there is no node, a name is given twice, a node's NIC kinds are
// unknown or out of order, or the backends of two NIC kinds are in opposite orders.
Status check_cluster(const Cluster& cluster);

}  // namespace hdt::plan
