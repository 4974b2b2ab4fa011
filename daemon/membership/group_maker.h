// group_maker.h: this node's side of making groups: the Joins of local ranks until the coordinator's
// Membership arrives, then the node's shared memory and the engine's group. It also knows which groups exist,
// so that a key names at most one of them. Runs on the control thread.
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
#include "daemon/membership/rendezvous.h"
#include "daemon/protocol/control_messages.h"
#include "daemon/protocol/making_facts.h"
#include "daemon/sessions/user_limits.h"

namespace hdt::daemon {

struct LocalJoin {
  uint64_t session = 0;
  session::JoinRequest request;
  // Of the process, as the kernel gave them for its session's socket.
  uint32_t pid = 0;
  uint32_t uid = 0;
};

// A group that this node's ranks may use now.
struct MadeGroup {
  uint64_t id = 0;
  uint32_t engine = 0;
  std::shared_ptr<SharedMemory> memory;
  GroupKey secret{};
};

// Where this node's daemon listens for the ranks of a group, as its rank 0 asked.
struct HostedPlace {
  std::string addresses;
  bool on_nics = false;
  std::shared_ptr<UserLimits::Claim> claim;
};

class GroupMaker {
 public:
  struct Services {
    // `self`: whether this node may be the one that is meant; nothing: its addresses say so.
    std::function<ChannelId(const std::string& address, std::optional<bool> self)> dial;
    std::function<void(ChannelId, const ControlMessage&)> send;
    // Says that nothing more is sent on the channel: it closes when what was sent has left.
    std::function<void(ChannelId)> finish;
    // Ends the channel, as something that was to be said on it is lost. Takes no memory.
    std::function<void(ChannelId)> give_up;
    // Begin and end to listen at a meeting place (ControlNetwork::host_place, leave_place).
    std::function<Status(const HostedPlace&)> host;
    std::function<void(const HostedPlace&)> leave;
    // Creates the group in engine number `engine`; spec.on_ready may be called from that engine's thread.
    std::function<void(uint32_t engine, GroupSpec)> create;
    // What a user's ranks want to have.
    std::function<Result<UserLimits::Claim>(uint32_t uid, UserLimits::What)> claim;
    // Runs work on the control thread.
    std::function<void(std::function<void()>)> post;
    std::function<void(uint32_t engine, uint64_t group, const Outcome&)> fail;
    std::function<void(const LocalJoin&, const MadeGroup&, uint32_t local_index)> joined;
    // Nobody takes this seat of a group that has been made.
    std::function<void(const MadeGroup&, uint32_t local)> lost;
    std::function<void(const LocalJoin&, const Status&)> refused;
    // Where this node can be reached for groups of a class.
    std::function<std::vector<std::vector<RailEnd>>(const std::string& group_class)> rails_for;
  };
  GroupMaker(NodeInfo node, const Config& config, Services services);

  void on_join(LocalJoin join);
  void on_session_gone(uint64_t session, const std::string& how);
  // Only the coordinator's word counts: what comes over the channel on which the ranks' Joins went out.
  void on_membership(ChannelId from, const Membership& membership);
  void on_outcome(ChannelId from, const Outcome& outcome);
  void on_closed(ChannelId channel, const Status& why);
  // A group of this node has ended; `id` as GroupFacts has it.
  void on_group_ended(const std::string& id);
  // A group that this daemon goes on with after its predecessor. The process is that of one of its ranks on
  // this node.
  // Fails where another group of this node has its id, or its key.
  Status on_adopted(const session::Description& group, uint32_t engine, uint32_t pid, uint32_t uid);
  // Why a process cannot join by this key: a group that exists has it. Nothing: it may.
  std::optional<Status> taken(const GroupKey& key, session::Meeting meeting, const std::string& joiner);
  void on_time();
  std::optional<Deadline> next_time() const;
  size_t open_groups() const { return groups_.size(); }
  // For diagnosis: groups that ranks of this node wait for.
  std::vector<MakingFacts> making() const;
  // Groups that have all their ranks, and are not made yet.
  size_t being_connected() const {
    return static_cast<size_t>(std::count_if(groups_.begin(), groups_.end(),
                                             [](const auto& g) { return g.second.made.has_value(); }));
  }

 private:
  struct Pending {
    std::string rendezvous;
    std::string group_class;
    session::Meeting meeting = session::Meeting::kSecret;
    std::string place;  // where the ranks meet, in the user's words
    std::optional<HostedPlace> hosted;
    ChannelId channel = 0;  // 0: to be dialled at retry_at
    int64_t retry_ms = 0;   // how long to wait before the next dial
    Deadline retry_at = Deadline::never();
    Deadline until = Deadline::never();
    // The coordinator is met on its own host only, and has been there before this: it is another host.
    Deadline elsewhere_at = Deadline::never();
    std::string last_error;
    std::map<uint32_t, LocalJoin> joins;  // by rank
    uint32_t uid = 0;                     // of the first rank, whose user the group belongs to
    UserLimits::Claim making_claim;
    std::shared_ptr<UserLimits::Claim> group_claim;
    std::optional<MadeGroup> made;  // membership has come; the engine connects
    Code to_fail =
        Code::kSuccess;  // `made`: the coordinator has said that it fails, and the engine is still to be told
  };
  // What the user of a group's first rank needs for it.
  Status claim_group(Pending& pending, const LocalJoin& join);
  // Where a process may have this daemon listen: as many places as its user may have, at ports that it could
  // take itself.
  Result<HostedPlace> place_for(const LocalJoin& join);
  void contact(const GroupKey& key, Pending& pending);
  void send_join(Pending& pending, const LocalJoin& join);
  void refuse(const GroupKey& key, const Status& why);
  // What a pending group holds beside its joins: its channel and its meeting place.
  void release(Pending& pending);
  // Of a class on this node; none: "auto".
  std::optional<collectives::Algorithm> configured_algorithm(const std::string& group_class) const;
  Result<GroupSpec> prepare(const Membership& membership, const Pending& pending, MadeGroup& made);
  // A group of this node, made or being made, has that id.
  bool has_id(uint64_t id) const;
  void on_ready(const GroupKey& key, const Status& status);
  void take_up(const GroupKey& key, const Status& status);
  void make(const Membership& membership, Pending& pending);

  NodeInfo node_;
  const Config& config_;
  Services services_;
  std::map<GroupKey, Pending> groups_;
  // A group that exists, under the key by which its ranks met.
  struct Living {
    uint64_t id = 0;
    uint32_t engine = 0;
    std::string who;  // "pid 7 of user 1000 (rank 0 of 2) on node n0"
    std::string place;
    int64_t made_at = 0;  // seconds since 1970
    int64_t made_ns = 0;  // now_ns(); 0: by a predecessor of this daemon
    std::optional<HostedPlace> hosted;
    std::shared_ptr<UserLimits::Claim> claim;
  };
  std::map<GroupKey, Living> living_;
  RefusedMeetings refused_;
};

}  // namespace hdt::daemon
