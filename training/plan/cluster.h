// cluster.h: the machines a plan may use.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::plan {

// One machine. Its devices share its network ports.
struct Node {
  std::string name;
  std::string device;  // the kind of its devices, as the profile names it
  int devices = 1;
  int64_t memory_bytes = 0;  // of each device
};

struct Cluster {
  std::vector<Node> nodes;

  int index_of(const std::string& node) const;  // -1: there is none
  // The device kinds, in the order of their first node.
  std::vector<std::string> device_kinds() const;
};

Status check_cluster(const Cluster& cluster);

}  // namespace hdt::plan
