// group_maker.h: this node's side of making groups: the Joins of local ranks until the coordinator's Membership arrives,
// then the node's shared memory and the engine's group. Runs on the control thread.
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
#include "daemon/control_messages.h"
#include "daemon/engine_group.h"
#include "daemon/rendezvous.h"

namespace hdt::daemon {

struct LocalJoin {
  uint64_t session = 0;
  session::JoinRequest request;
};

// A group that this node's ranks may use now.
struct MadeGroup {
  uint64_t id = 0;
  uint32_t engine = 0;
  std::shared_ptr<SharedMemory> memory;
};

class GroupMaker {
 public:
  struct Services {
    std::function<ChannelId(const std::string& address)> dial;
    std::function<void(ChannelId, const ControlMessage&)> send;
    std::function<Status(const std::string& address)> listen_at;
    // Creates the group in engine number `engine`; spec.on_ready may be called from that engine's thread.
    std::function<void(uint32_t engine, GroupSpec)> create;
    // Runs work on the control thread.
    std::function<void(std::function<void()>)> post;
    std::function<void(uint32_t engine, uint64_t group, const Outcome&)> fail;
    std::function<void(const LocalJoin&, const MadeGroup&, uint32_t local_index)> joined;
    std::function<void(const LocalJoin&, const Status&)> refused;
    // Where this node can be reached for groups of a class.
    std::function<std::vector<std::vector<RailEnd>>(const std::string& group_class)> rails_for;
  };
  GroupMaker(NodeInfo node, const Config& config, Services services);

  void on_join(LocalJoin join);
  void on_session_gone(uint64_t session, const std::string& how);
  void on_membership(const Membership& membership);
  void on_outcome(const Outcome& outcome);
  void on_closed(ChannelId channel, const Status& why);
  void on_time();
  std::optional<Deadline> next_time() const;
  size_t open_groups() const { return groups_.size(); }
  // Groups that have all their ranks, and are not made yet.
  size_t being_connected() const {
    return static_cast<size_t>(std::count_if(groups_.begin(), groups_.end(),
                                             [](const auto& g) { return g.second.made.has_value(); }));
  }

 private:
  struct Pending {
    std::string rendezvous;
    std::string group_class;
    ChannelId channel = 0;  // 0: to be dialled at retry_at
    Deadline retry_at = Deadline::never();
    Deadline until = Deadline::never();
    std::string last_error;
    std::map<uint32_t, LocalJoin> joins;  // by rank
    std::optional<MadeGroup> made;        // membership has come; the engine connects
  };
  void contact(const GroupKey& key, Pending& pending);
  void send_join(Pending& pending, const LocalJoin& join);
  void refuse(const GroupKey& key, const Status& why);
  // Of a class on this node; none: "auto".
  std::optional<collectives::Algorithm> configured_algorithm(const std::string& group_class) const;
  Result<GroupSpec> prepare(const Membership& membership, const Pending& pending, MadeGroup& made);
  void on_ready(const GroupKey& key, const Status& status);

  NodeInfo node_;
  const Config& config_;
  Services services_;
  std::map<GroupKey, Pending> groups_;
};

}  // namespace hdt::daemon
