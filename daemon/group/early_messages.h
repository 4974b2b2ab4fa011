// early_messages.h: messages of other nodes for groups that do not exist here yet: hellos, failures and
// measurements. They are kept for a while, at most so many of one node that its messages do not take the
// place of another's.
//
// Owner: Engine; the engine's thread.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "daemon/links/link_choice.h"
#include "daemon/protocol/wire.h"

namespace hdt::daemon {

// Messages that a peer sends before this node has made the group cannot be refused: nodes make their parts at
// different speeds. So it is kept, but within limits that a peer cannot exceed, and nothing of it is looked
// at before the group takes it.
class EarlyMessages {
 public:
  // Keeps a message that came over that link, unless the node or all nodes have too many.
  void keep(const LinkId& from, const EngineMessage& message) {
    const auto of_node = std::count_if(kept_.begin(), kept_.end(),
                                       [&](const Kept& kept) { return kept.from.node == from.node; });
    if (of_node >= kMostOfNode || kept_.size() >= kMost) return;
    kept_.push_back({from, message, Deadline::after_ms(kKeptMs)});
  }
  // Takes out what came over that link for the group, in order.
  std::vector<EngineMessage> take(const LinkId& from, uint64_t group) {
    std::vector<EngineMessage> taken;
    std::erase_if(kept_, [&](const Kept& kept) {
      if (kept.from != from || group_of(kept.message) != group) return false;
      taken.push_back(kept.message);
      return true;
    });
    return taken;
  }
  // Calls `use` with the links over which that node has sent its hello for the group, until it returns true.
  template <typename Use>
  void for_hellos(const NodeId& node, uint64_t group, Use&& use) const {
    for (const Kept& kept : kept_) {
      if (kept.from.node != node || group_of(kept.message) != group) continue;
      if (std::holds_alternative<GroupHello>(kept.message) && use(kept.from)) return;
    }
  }
  // Drops what nobody has come for.
  void expire() {
    std::erase_if(kept_, [](const Kept& kept) { return kept.until.expired(); });
  }

 private:
  // Enough for the three messages of each group that is being made with a node.
  static constexpr ptrdiff_t kMostOfNode = 1024;
  static constexpr size_t kMost = 16 * kMostOfNode;
  static constexpr int64_t kKeptMs = 60'000;
  struct Kept {
    LinkId from;
    EngineMessage message;
    Deadline until;
  };
  std::vector<Kept> kept_;
};

}  // namespace hdt::daemon
