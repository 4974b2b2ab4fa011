// group_maker.h: this node's side of making groups. It sends the Joins of local ranks to the coordinator,
// and when the Membership arrives it makes the node's shared memory and has an engine make the group. It
// also knows which groups of this node exist, so that a key names one of them at most.
//
// A key passes through these states:
// 1. pending, no connection (`channel` 0): the coordinator could not be reached yet, and is dialled again at
//    `retry_at`.
// 2. pending, connected: the Joins have been sent, and the coordinator waits for other ranks.
// 3. made: the Membership has come. The engine connects to the other nodes. It reports the result once,
//    through GroupSpec::on_ready; whatever fails the group now does so through the engine.
// 4. living: the ranks have been answered, and the entry is in `living_` until the group has ended.
//
// From every pending state refuse() leads to the end: all ranks that wait get the reason. Before state 3
// this happens at `until`, when a rank is refused by the coordinator, or when no coordinator can be reached
// at all. A rank whose process ends is taken out, and the coordinator gets a Cancel.
//
// Owner and thread: Control; the control thread. GroupMakerUser::post() brings what engines report back to
// it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/shared_memory.h"
#include "daemon/group/engine_group.h"
#include "daemon/membership/channels.h"
#include "daemon/membership/rendezvous.h"
#include "daemon/protocol/control_messages.h"
#include "daemon/protocol/making_facts.h"
#include "daemon/sessions/user_limits.h"

namespace hdt::daemon {

// A rank of this node that wants to join.
struct LocalJoin {
  // the session of its process (ClientSessions)
  uint64_t session = 0;
  ipc::JoinRequest request;
  // The process's number and user, as the kernel reported them for the session's socket. `pid` is 0 if
  // the process has no number here.
  uint32_t pid = 0;
  uint32_t uid = 0;
  // once the group is made: the rank's index on this node
  uint32_t local = 0;
};

// A group whose part on this node has been made.
struct MadeGroup {
  uint64_t id = 0;
  // index of the engine that runs it
  uint32_t engine = 0;
  // the segment of the group on this node
  std::shared_ptr<SharedMemory> memory;
  // from the Membership: members derive the keys of later groups from it
  GroupKey secret{};
};

// Where this node's daemon listens for the ranks of a group, as its rank 0 asked.
struct HostedPlace {
  // with ports, separated by commas, as the rank gave them
  std::string addresses;
  // also at the same port on all NICs of this node
  bool on_nics = false;
  // one of the user's listeners; null if there are no limits
  std::shared_ptr<UserLimits::Claim> claim;
};

// The rest of the daemon, as GroupMaker needs it. All functions are called on the control thread.
class GroupMakerUser {
 public:
  virtual ~GroupMakerUser() = default;
  // Begin and end to listen at a meeting place (ControlNetwork::host_place() and leave_place()).
  virtual Status host(const HostedPlace& place) = 0;
  virtual void leave(const HostedPlace& place) = 0;
  // Takes a part of a user's limit (UserLimits::claim()). Null: there are no limits.
  virtual Result<std::shared_ptr<UserLimits::Claim>> claim(uint32_t uid, UserLimits::What what) = 0;
  // Has engine number `engine` create the group. spec.on_ready may be called on that engine's thread.
  virtual void create(uint32_t engine, GroupSpec spec) = 0;
  // Runs work on the control thread; called from any thread.
  virtual void post(std::function<void()> work) = 0;
  // Fails a group that an engine has.
  virtual void fail(uint32_t engine, uint64_t group, const Outcome& outcome) = 0;
  // Answers a join with success, or with a failure. False: for want of memory the group did not learn whether
  // the rank has a seat; rank_failed() is to be repeated until it is.
  virtual bool joined(const LocalJoin& join, const MadeGroup& made) = 0;
  virtual void refused(const LocalJoin& join, const Status& why) = 0;
  // The rank with this local index will never take its seat in a group that has been made. False: as
  // joined().
  virtual bool rank_failed(const MadeGroup& made, uint32_t local) = 0;
  // The ends at which this node can be reached for groups of a class, by engine.
  virtual std::vector<std::vector<RailEnd>> rails_for(const std::string& group_class) = 0;
};

class GroupMaker {
 public:
  // `config` and the others must live as long as this object; its classes may change meanwhile
  // (class_change.h).
  GroupMaker(NodeInfo node, const Config& config, Channels& channels, GroupMakerUser& user);

  // A rank of this node wants to join. It is answered by `joined` or `refused`, at once or later.
  void on_join(LocalJoin join);
  // The session of a process has ended; `how` completes "rank 3 on node n0 ...". Its ranks in pending
  // groups are taken out. Groups that are made learn it from the engine.
  void on_session_ended(uint64_t session, const std::string& how);
  // Messages of the coordinator. They count only on the connection on which the ranks' Joins were sent.
  void on_membership(ChannelId from, const Membership& membership);
  void on_outcome(ChannelId from, const Outcome& outcome);
  // A connection has ended, for the reason `why`. kSystem and kConfig end the wait at once: dialling
  // again would not help.
  void on_closed(ChannelId channel, const Status& why);
  // A group of this node has ended; `id` is its public name (GroupFacts::id). Its key is free again.
  void on_group_ended(const std::string& id);
  // Registers a group that this daemon takes over from its predecessor. The process is that of one of its
  // ranks on this node. kInvalidUsage: another group of this node has its id or its key.
  Status on_adopted(const ipc::Description& group, uint32_t engine, uint32_t pid, uint32_t uid);
  // Why a process cannot join by this key: a living group has it. Nothing: it may. `joiner` names the
  // process in messages. Has an effect: if the group met at an address less than a second ago, ranks of
  // two jobs may have been mixed up, so the group is failed as well.
  std::optional<Status> taken(const GroupKey& key, ipc::Meeting meeting, const std::string& joiner);
  // Dials again, and refuses groups whose deadline has passed.
  void on_time();
  // When on_time() has something to do next; nothing: never.
  std::optional<Deadline> next_time() const;
  // Groups in states 1 to 3.
  size_t open_groups() const { return groups_.size(); }
  // The same groups, for diagnosis.
  std::vector<MakingFacts> making() const;
  // Groups in state 3.
  size_t being_connected() const {
    return static_cast<size_t>(std::count_if(groups_.begin(), groups_.end(),
                                             [](const auto& g) { return g.second.made.has_value(); }));
  }

 private:
  // A group in states 1 to 3. The settings of the whole group are those of the rank that joined first.
  struct Pending {
    // where the coordinator is met, as addresses
    std::string rendezvous;
    std::string group_class;
    ipc::Meeting meeting = ipc::Meeting::kSecret;
    // the same in the user's words, for messages
    std::string place;
    // set: this node listens there, as rank 0 is here
    std::optional<HostedPlace> hosted;
    // the connection to the coordinator; 0: none
    ChannelId channel = 0;
    // ms between the end of this connection and the next dial; doubled each time, 30 to 500
    int64_t retry_ms = 0;
    // when to dial again; never: there is a connection, or none is needed any more
    Deadline retry_at = Deadline::never();
    // the first rank's deadline, and a second for the coordinator's answer
    Deadline until = Deadline::never();
    // Set if the id names a certain daemon and loopback addresses only: that daemon has peers on its own
    // host only. If it still cannot be reached at this time, it is on another host.
    Deadline elsewhere_at = Deadline::never();
    // why the latest connection ended
    std::string last_error;
    // by rank; never empty between two events
    std::map<uint32_t, LocalJoin> joins;
    // the user of the first rank; the group belongs to it
    uint32_t uid = 0;
    // The first ends with this entry; the second is handed on to the living group.
    std::shared_ptr<UserLimits::Claim> making_claim;
    std::shared_ptr<UserLimits::Claim> group_claim;
    // state 3
    std::optional<MadeGroup> made;
    // State 3: the coordinator has reported a failure, but it could not be passed to the engine for want of
    // memory. on_time() tries again. kSuccess: nothing is to be passed on.
    Code to_fail = Code::kSuccess;
    // State 3: the engine has the group, and this daemon could not take it up: refuse() ends it there as
    // well.
    bool given_up = false;
  };
  // Takes what the user of the group's first rank needs for it. kSystem: it has as many already.
  Status claim_group(Pending& pending, const LocalJoin& join);
  // Checks where a process wants this daemon to listen: as many places as its user may have, at ports
  // that the process could take itself. kInvalidUsage, or kSystem at a limit.
  Result<HostedPlace> place_for(const LocalJoin& join);
  // State 1 to state 2: dials, and sends all Joins.
  void contact(const GroupKey& key, Pending& pending);
  void send_join(Pending& pending, const LocalJoin& join);
  // Ends a pending group: all its ranks are answered with `why`.
  void refuse(const GroupKey& key, const Status& why);
  // Gives back what a pending group holds besides its joins: its connection and its meeting place.
  void release(Pending& pending);
  // The algorithm that this node's configuration has for a class; nothing: "auto".
  std::optional<collectives::Algorithm> configured_algorithm(const std::string& group_class) const;
  // Checks a Membership against this node and makes the group's memory. Fills in `made`.
  Result<GroupSpec> prepare(const Membership& membership, const Pending& pending, MadeGroup& made);
  // Whether a group of this node, living or in state 3, has that id.
  bool has_id(uint64_t id) const;
  // The engine's report. on_ready() contains the exceptions of take_up(), which does the work.
  void on_ready(const GroupKey& key, const Status& status);
  void take_up(const GroupKey& key, const Status& status);
  void give_up(const GroupKey& key, const std::string& why);
  // State 2 to state 3.
  void make(const Membership& membership, Pending& pending);

  // this node; its rails are asked for anew with each Join (rails_for)
  NodeInfo node_;
  const Config& config_;
  Channels& channels_;
  GroupMakerUser& user_;
  // Ranks of groups that are made or refused, whose loss could not be reported to the engine for want of
  // memory. Until it is, the group waits for them, and the other ranks with it. The entries come from groups_
  // as they are, which takes no memory.
  std::multimap<GroupKey, Pending> unseated_;
  // Reports them to their engines.
  void tell_failed();
  // states 1 to 3
  std::map<GroupKey, Pending> groups_;
  // A group in state 4. Kept so that other processes that come with its key are refused by name.
  struct Living {
    uint64_t id = 0;
    uint32_t engine = 0;
    // for messages: "pid 7 of user 1000 (rank 0 of 2) on node n0"
    std::string who;
    // where its ranks met, in the user's words
    std::string place;
    // when it was made, in seconds since 1970
    int64_t made_at = 0;
    // now_ns() when it was made; 0: it was made by a predecessor of this daemon
    int64_t made_ns = 0;
    std::optional<HostedPlace> hosted;
    std::shared_ptr<UserLimits::Claim> claim;
  };
  std::map<GroupKey, Living> living_;
  RefusedMeetings refused_;
};

}  // namespace hdt::daemon
