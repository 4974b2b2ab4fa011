// rendezvous.h: the coordinator's side of making groups: collects Joins until a group is complete. Pure
// bookkeeping: no sockets, no clock of its own, so that every order of events can be tested.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "daemon/membership/refused_meetings.h"
#include "daemon/protocol/control_messages.h"
#include "daemon/protocol/making_facts.h"

namespace hdt::daemon {

using ChannelId = uint64_t;

class Rendezvous {
 public:
  struct Reply {
    ChannelId to;
    ControlMessage message;
  };
  // Each returns what is to be sent now. Of a group only those are heard on whose channels ranks of it have
  // joined.
  std::vector<Reply> on_join(ChannelId from, const Join& join);
  std::vector<Reply> on_cancel(ChannelId from, const Cancel& cancel);
  std::vector<Reply> on_outcome(ChannelId from, const Outcome& outcome);
  // The channel to a node is gone: groups it takes part in cannot be made.
  std::vector<Reply> on_closed(ChannelId channel);
  // Groups whose deadline has passed: all who have joined hear who has not.
  std::vector<Reply> on_time();
  std::optional<Deadline> next_time() const;
  size_t open_groups() const { return groups_.size(); }
  // For diagnosis: groups that are to be made here.
  std::vector<MakingFacts> making() const;
  // Groups that have all their ranks, and are not reported made by all nodes.
  size_t being_connected() const {
    return static_cast<size_t>(
        std::count_if(groups_.begin(), groups_.end(), [](const auto& g) { return g.second.complete; }));
  }

 private:
  struct Member {
    ChannelId channel;
    Join join;
  };
  struct Group {
    uint32_t ranks = 0;
    session::Meeting meeting = session::Meeting::kSecret;
    std::string group_class;
    std::map<uint32_t, Member> members;  // by rank
    std::map<ChannelId, bool> nodes;     // has reported success; filled when complete
    Deadline deadline = Deadline::never();
    Deadline settled = Deadline::never();  // all ranks have come: when the group is complete
    bool complete = false;
    GroupKey secret{};  // complete: what the members were given
  };
  void erase(const std::vector<GroupKey>& over);
  static bool has_joined(const Group& group, ChannelId channel);
  std::vector<Reply> complete(const GroupKey& key, Group& group);
  // Also remembers why, for members that come later.
  std::vector<Reply> refuse(const GroupKey& key, const Group& group, Code code, int32_t rank,
                            const std::string& why);
  std::map<GroupKey, Group> groups_;
  RefusedMeetings refused_;
};

}  // namespace hdt::daemon
