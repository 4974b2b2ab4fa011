// adoption.cc: checks the memory that a rank of a predecessor's group hands over, and makes from it the
// description that an engine starts the group with. See adoption.h for what is trusted.
#include "daemon/membership/adoption.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/foreign_copy.h"
#include "ipc/journal.h"

namespace hdt::daemon {

namespace {

// Memory that a rank brings first. `group` is all that is ever read of its header.
struct Brought {
  SharedMemory memory;
  ipc::Description group;
};

// Maps and checks memory that no rank has brought yet.
Result<Brought> bring(UniqueFd fd, const struct stat& file) {
  if (file.st_uid != ::geteuid())
    return Status(Code::kInvalidUsage, "the memory was not made by a daemon of this one's user");
  auto mapped = SharedMemory::map(std::move(fd));
  if (!mapped.is_ok()) return mapped.status();
  auto group = ipc::Description::read(mapped.value().data(), mapped.value().size());
  if (!group.is_ok()) return group.status();
  // Layout fits into the size, as Description::read() has checked. More than that a daemon never makes.
  if (mapped.value().size() != group.value().layout.total)
    return Status(Code::kInvalidUsage, "the memory is larger than its group needs");
  return Brought{mapped.take(), group.take()};
}

}  // namespace

// Checks who made the file, that its size is exact, and that user, engine and rank are consistent over all
// ranks that bring it. Whether the process may use this engine and handle is checked by Restarts::adopt().
Result<Adoption::Found> Adoption::find(const ipc::AdoptRequest& request, uint32_t uid, UniqueFd fd) {
  struct stat file {};
  if (::fstat(fd.get(), &file) != 0) return Status::from_errno("fstat of a group's memory", errno);
  // A file is known by device and inode. The inode of a file that is deleted may be given again, so entries
  // of groups that have ended must go first.
  std::erase_if(known_, [](const auto& entry) { return entry.second.memory.expired(); });
  const std::pair<dev_t, ino_t> name{file.st_dev, file.st_ino};
  // The error for a local index that the group does not have.
  const auto no_such_rank = [&](size_t local_ranks) {
    return Status(Code::kInvalidUsage, "local rank " + std::to_string(request.local_index) +
                                           " of a group that has " + std::to_string(local_ranks) +
                                           " on this node");
  };
  // A later rank: its descriptor is dropped, and nothing is read from the memory again.
  if (const auto known = known_.find(name); known != known_.end()) {
    Known& group = known->second;
    if (group.engine != request.engine || group.uid != uid)
      return Status(Code::kInvalidUsage, "another rank has brought the group for another engine or user");
    if (request.local_index >= group.taken.size()) return no_such_rank(group.taken.size());
    if (group.taken[request.local_index])
      return Status(Code::kInvalidUsage, "this rank of the group has been taken over already");
    group.taken[request.local_index] = true;
    return Found{group.id, nullptr, std::nullopt};
  }
  // The first rank. All checks come before the entry, so that a refused rank leaves nothing behind.
  auto brought = bring(std::move(fd), file);
  if (!brought.is_ok()) return brought.status();
  // The copy that was checked. The ranks can still write to the header, so it is not read again.
  ipc::Description& group = brought.value().group;
  if (request.local_index >= group.layout.local_ranks) return no_such_rank(group.layout.local_ranks);
  size_t of_user = 0;
  for (const auto& [other, known] : known_) {
    if (known.id == group.group)
      return Status(Code::kInvalidUsage, "ranks of the group hand over different memory");
    of_user += known.uid == uid ? 1 : 0;
  }
  if (of_user >= kMostAdoptedGroups) {
    return Status(Code::kSystem,
                  "a daemon takes over at most " + std::to_string(kMostAdoptedGroups) + " groups of a user");
  }
  Found found{group.group, std::make_shared<SharedMemory>(std::move(brought.value().memory)),
              std::move(group)};
  Known known{found.id, found.memory, request.engine, uid,
              std::vector<bool>(found.group->layout.local_ranks)};
  // The entry's weak_ptr expires with the group: when the caller refuses it, or when the engine has ended
  // it.
  known.taken[request.local_index] = true;
  known_.emplace(name, std::move(known));
  return found;
}

// Makes the same GroupSpec as GroupMaker::prepare() does, from the segment instead of a Membership.
// Everything that others may write is copied once.
Result<GroupSpec> Adoption::describe(const Found& found, const NodeInfo& node) const {
  const ipc::Description& group = *found.group;
  const ipc::Layout& layout = group.layout;
  const ipc::Segment segment = ipc::Segment::view(found.memory->data(), layout);
  GroupSpec spec;
  spec.id = found.id;
  spec.adopted = true;
  spec.memory = found.memory;
  spec.group_class = group.group_class;
  spec.me = group.node;
  // 1. The ranks of each node. The table of members is foreign: each entry is copied once and checked.
  //    With one node there is no table to read.
  std::vector<uint32_t> ranks_of(layout.nodes, 0);
  for (uint32_t rank = 0; rank < layout.ranks; ++rank) {
    const uint32_t of = layout.nodes == 1 ? 0 : foreign_copy(segment.members()[rank].node);
    if (of >= layout.nodes) return Status(Code::kInvalidArgument, "a member of the group is on no node");
    spec.node_of_rank.push_back(of);
    ++ranks_of[of];
  }
  // 2. As valid(Membership) demands: every node has a rank and no more than fit; this node has as many as
  //    its memory has seats for.
  const bool full = std::all_of(ranks_of.begin(), ranks_of.end(),
                                [](uint32_t ranks) { return ranks > 0 && ranks <= ipc::kMaxLocalRanks; });
  if (!full || ranks_of[spec.me] != layout.local_ranks || !is_plain_text(group.group_class)) {
    return Status(Code::kInvalidArgument, "the members of the group do not fit its memory");
  }
  for (uint32_t other = 0; other < layout.nodes; ++other) {
    // 3. The other nodes: their addresses are in the segment; their names and ids are learned when they
    //    are met.
    // An address may be any text: whoever dials it checks it, and the handshake says who is there.
    const std::string address = segment.places()[other].get();
    spec.nodes.push_back(other == spec.me ? node : NodeInfo{{}, "at " + address, address, {}});
  }
  if (layout.nodes == 1) return spec;
  // 4. Read what all nodes agreed on when the group was made: the same algorithm and measured rates must
  //    be used again, or nodes would run different schedules.
  const auto agreed = ipc::Journal(segment.journals(), layout.nodes, layout.slots).agreed();
  if (!agreed) return Status(Code::kDaemonLost, "the daemon died while the group was made");
  spec.algorithm = agreed->algorithm;
  spec.rates = agreed->rates;
  spec.nics = agreed->nics;
  return spec;
}

}  // namespace hdt::daemon
