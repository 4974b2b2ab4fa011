// rendezvous.h: the coordinator's side of making groups. It collects the Joins of a key until all ranks
// are there, sends the Membership to every node, and waits until each has reported that its part is made.
// It is pure bookkeeping without sockets and with no timer of its own, so that every order of events can
// be tested.
//
// A group passes through these states:
// 1. collecting: some ranks are missing. Ends at `deadline`, the earliest of its ranks' deadlines.
// 2. settling: all ranks are there, and the group waits until `settled` whether a second job comes to the
//    same address. Only for Meeting::kAddress.
// 3. complete: the Membership was sent, and some nodes have not reported success yet. If anything fails
//    now, all nodes are informed.
// 4. over: erased here. The group works, or all who had joined got the reason why not (refused_meetings.h
//    remembers it for those who come later).
//
// Owner and thread: Control; the control thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "daemon/membership/channels.h"
#include "daemon/membership/refused_meetings.h"
#include "daemon/protocol/control_messages.h"
#include "daemon/protocol/making_facts.h"

namespace hdt::daemon {

class Rendezvous {
 public:
  // A message that the caller is to send.
  struct Reply {
    ChannelId to;
    ControlMessage message;
  };
  // Each handles an event and returns the messages to send now. `from` is the connection on which the
  // event came. Cancel and Outcome count only on a connection on which a rank of that group has joined.
  // The caller has checked that a Join's node is the one at the other end (Joins::on_join_message).
  std::vector<Reply> on_join(ChannelId from, const Join& join);
  std::vector<Reply> on_cancel(ChannelId from, const Cancel& cancel);
  std::vector<Reply> on_outcome(ChannelId from, const Outcome& outcome);
  // The connection to a node has ended. A group that the node takes part in cannot be made, unless the
  // node has reported success already.
  std::vector<Reply> on_closed(ChannelId channel);
  // Completes one group that has settled, if there is one; otherwise refuses the groups whose deadline
  // has passed: all who have joined learn which ranks are missing. Logs every 10 s for which ranks a group
  // waits: in a job without a daemon of the node's, rank 0's user sees that.
  std::vector<Reply> on_time();
  // When on_time() has something to do next; nothing if there are no groups.
  std::optional<Deadline> next_time() const;
  // Groups in any of the states 1 to 3.
  size_t open_groups() const { return groups_.size(); }
  // The same groups, for diagnosis.
  std::vector<MakingFacts> making() const;
  // Groups in state 3.
  size_t being_connected() const {
    return static_cast<size_t>(
        std::count_if(groups_.begin(), groups_.end(), [](const auto& g) { return g.second.complete; }));
  }

 private:
  static constexpr int64_t kReminderMs = 10'000;
  // A rank that has joined, and the connection of its node.
  struct Member {
    ChannelId channel;
    Join join;
  };
  // A group from its first Join on, which determines `ranks`, `meeting` and `group_class`.
  struct Group {
    uint32_t ranks = 0;
    ipc::Meeting meeting = ipc::Meeting::kSecret;
    std::string group_class;
    std::map<uint32_t, Member> members;  // by rank
    // in state 3: one connection for each node, and whether the node has reported success
    std::map<ChannelId, bool> nodes;
    // when the group is given up
    Deadline deadline = Deadline::never();
    // in state 1: when the missing ranks are logged next
    Deadline reminder = Deadline::after_ms(kReminderMs);
    // in state 2: when it is complete
    Deadline settled = Deadline::never();
    // state 3
    bool complete = false;
    // in state 3: the secret that the members were given
    GroupKey secret{};
  };
  // Erases the groups with these keys.
  void erase(const std::vector<GroupKey>& over);
  static std::set<uint32_t> missing_ranks(const Group& group);
  // Logs the ranks that are missing where it is time to.
  void remind();
  // Whether a rank of the group has joined on this connection.
  static bool has_joined(const Group& group, ChannelId channel);
  // State 2 (or 1) to state 3: draws the secret and returns the Membership for each node.
  std::vector<Reply> complete(const GroupKey& key, Group& group);
  // The messages that a rank which cannot take part causes. Erases the group.
  std::vector<Reply> on_declined(ChannelId from, const Join& join);
  // The messages to all who have joined that the group is not made. Also remembers why, for
  // members that come later. The caller erases the group.
  std::vector<Reply> refuse(const GroupKey& key, const Group& group, Code code, int32_t rank,
                            const std::string& why);
  std::map<GroupKey, Group> groups_;
  RefusedMeetings refused_;
};

}  // namespace hdt::daemon
