// group_table.cc: see group_table.h.
#include "daemon/group/group_table.h"

namespace hdt::daemon {

// Reserves what touch() and progress_touched() need for one more group. So these never allocate, and a
// round cannot fail because a group rang. Slots of groups that have ended are used again: the index is part
// of the tokens of writes.
uint32_t GroupTable::make_room() {
  const auto free = std::find(groups_.begin(), groups_.end(), nullptr);
  const auto index = static_cast<uint32_t>(free - groups_.begin());
  if (free == groups_.end()) groups_.emplace_back();
  touched_.reserve(groups_.size());
  progressing_.reserve(groups_.size());
  return index;
}

// The map first: it is the step that can throw, and it leaves the slot free if it does.
EngineGroup& GroupTable::enter(uint32_t index, std::unique_ptr<EngineGroup> group) {
  by_id_[group->id()] = group.get();
  groups_[index] = std::move(group);
  return *groups_[index];
}

// The ids of the latest groups stay known, so that what comes late for one of them is not taken for early.
// touched_ may still hold the group, as a group that ends was just looked at.
void GroupTable::remove(uint32_t index) {
  const uint64_t id = groups_[index]->id();
  ended_[next_ended_++ % ended_.size()] = id;
  by_id_.erase(id);
  std::erase(touched_, groups_[index].get());
  groups_[index].reset();
}

// At most one entry for each group, so make_room() can reserve.
void GroupTable::touch(EngineGroup& group) {
  if (std::find(touched_.begin(), touched_.end(), &group) == touched_.end()) touched_.push_back(&group);
}

// After a round that threw: it is not known which bells were heard and not followed.
void GroupTable::touch_all() {
  for (const auto& group : groups_) {
    if (group != nullptr) touch(*group);
  }
}

// The list is swapped out first: progress of one group may touch others, or the same one, which then belong
// to the next look. A group is never destroyed in between, as only reap_groups() does that.
bool GroupTable::progress_touched() {
  bool any = false;
  progressing_.clear();
  progressing_.swap(touched_);
  for (EngineGroup* group : progressing_) {
    contain(*group, [&] { any |= group->progress(); });
  }
  return any;
}

}  // namespace hdt::daemon
