#include "daemon/adoption.h"

#include <sys/stat.h>

#include <cerrno>

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
  if (segment.layout().nodes != 1 || segment.layout().local_ranks != segment.layout().ranks) {
    return Status(Code::kDaemonLost, "a group of several nodes does not survive its daemon");
  }
  GroupSpec spec;
  spec.id = group.id;
  spec.adopted = true;
  spec.memory = group.memory;
  const char* name = segment.header().group_class;
  spec.group_class = std::string(name, ::strnlen(name, session::kMaxClassBytes));
  spec.me = 0;
  spec.nodes = {node};
  spec.node_of_rank.resize(segment.layout().ranks, 0);
  return spec;
}

}  // namespace hdt::daemon
