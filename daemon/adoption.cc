#include "daemon/adoption.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "session/journal.h"

namespace hdt::daemon {

Result<Adoption::Found> Adoption::find(const session::AdoptRequest& request, UniqueFd fd) {
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0) return Status::from_errno("fstat of a group's memory", errno);
  auto mapped = SharedMemory::map(std::move(fd));
  if (!mapped.is_ok()) return mapped.status();
  auto segment = session::Segment::attach(mapped.value().data(), mapped.value().size());
  if (!segment.is_ok()) return segment.status();
  std::erase_if(known_, [](const auto& entry) { return entry.second.memory.expired(); });
  Found found{segment.value().header().group, nullptr, segment.value()};
  const uint32_t local_ranks = segment.value().layout().local_ranks;
  if (request.local_index >= local_ranks) {
    return Status(Code::kInvalidUsage, "local rank " + std::to_string(request.local_index) +
                                           " of a group that has " + std::to_string(local_ranks) +
                                           " on this node");
  }
  const auto known = known_.find(found.id);
  if (known == known_.end()) {
    found.memory = std::make_shared<SharedMemory>(mapped.take());
    known_[found.id] = {found.memory, file.st_dev, file.st_ino, request.engine, local_ranks};
    return found;
  }
  if (known->second.device != file.st_dev || known->second.inode != file.st_ino ||
      known->second.engine != request.engine) {
    return Status(Code::kInvalidUsage, "ranks of the group hand over different memory");
  }
  return found;
}

Result<GroupSpec> Adoption::describe(const Found& group, const NodeInfo& node) const {
  const session::Segment& segment = group.segment;
  const session::Layout& layout = segment.layout();
  GroupSpec spec;
  spec.id = group.id;
  spec.adopted = true;
  spec.memory = group.memory;
  const char* name = segment.header().group_class;
  spec.group_class = std::string(name, ::strnlen(name, session::kMaxClassBytes));
  spec.me = segment.header().node;
  std::vector<uint32_t> ranks_of(layout.nodes, 0);
  for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
    const uint32_t of = layout.nodes == 1 ? 0 : segment.members()[rank].node;
    if (of >= layout.nodes) return Status(Code::kInvalidArgument, "a member of the group is on no node");
    spec.node_of_rank.push_back(of);
    ++ranks_of[of];
  }
  if (spec.me >= layout.nodes || ranks_of[spec.me] != layout.local_ranks ||
      std::find(ranks_of.begin(), ranks_of.end(), 0) != ranks_of.end()) {
    return Status(Code::kInvalidArgument, "the members of the group do not fit its memory");
  }
  for (uint32_t other = 0; other < layout.nodes; ++other) {
    // The others' names are learned when they are met.
    const std::string address = segment.places()[other].get();
    spec.nodes.push_back(other == spec.me ? node : NodeInfo{{}, "at " + address, address, {}});
  }
  if (layout.nodes == 1) return spec;
  const auto agreed = session::Journal(segment.journals(), layout.nodes, layout.slots).agreed();
  if (!agreed) return Status(Code::kDaemonLost, "the daemon died while the group was made");
  spec.algorithm = agreed->algorithm;
  spec.rates = agreed->rates;
  return spec;
}

}  // namespace hdt::daemon
