// group_table.h: the groups of an engine, and which of them have something to do.
//
// A group is touched when a rank has rung or something has come for it; progress_touched() then lets it do
// all that it can. Work for one group runs in contain(): what throws ends that group alone
// (base/contained.h).
//
// Owner: Engine; the engine's thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/contained.h"
#include "daemon/group/engine_group.h"

namespace hdt::daemon {

// The number of the node in the group; nothing: it is no member. The node id is another one after a restart,
// so a successor is in no group before it was met (Successors::meet()).
inline std::optional<uint32_t> node_of(const EngineGroup& group, const NodeId& id) {
  const auto& nodes = group.context().nodes;
  for (uint32_t node = 0; node < nodes.size(); ++node) {
    if (nodes[node].id == id) return node;
  }
  return std::nullopt;
}

class GroupTable {
 public:
  using Groups = std::vector<std::unique_ptr<EngineGroup>>;

  // By group index; entries that are free are null.
  const Groups& all() const { return groups_; }
  EngineGroup& at(uint32_t index) const { return *groups_[index]; }
  // null: there is no such group.
  EngineGroup* find(uint64_t id) const {
    const auto found = by_id_.find(id);
    return found == by_id_.end() ? nullptr : found->second;
  }
  // A group of this id was here lately.
  bool has_ended(uint64_t id) const { return std::find(ended_.begin(), ended_.end(), id) != ended_.end(); }

  // The index of a free entry, which the next group gets. Also makes the room that touch() needs.
  uint32_t make_room();
  EngineGroup& enter(uint32_t index, std::unique_ptr<EngineGroup> group);
  // Destroys the group.
  void remove(uint32_t index);

  // The group has something to do: progress() follows in this round or the next one. Takes no memory.
  void touch(EngineGroup& group);
  void touch_all();
  // progress() of every touched group; true if anything was done. A group that is touched meanwhile waits
  // for the next call.
  bool progress_touched();

  template <typename Work>
  static void contain(EngineGroup& group, Work&& work) {
    (void)contained("a group", work, [&group](const std::string& why) { group.give_up(why); });
  }

 private:
  Groups groups_;
  std::unordered_map<uint64_t, EngineGroup*> by_id_;
  std::array<uint64_t, 256> ended_{};  // ids of the last groups that ended, in a ring
  size_t next_ended_ = 0;
  std::vector<EngineGroup*> touched_;      // in the order in which they were touched, each once
  std::vector<EngineGroup*> progressing_;  // by progress_touched()
};

}  // namespace hdt::daemon
