// joins.h: the joins of processes: from a request to a seat in a group. GroupMaker makes the groups; this
// class gives it what it needs of the daemon, and answers each join exactly once, by its number.
//
// Owner: ControlParts; the control thread, except for post().
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "daemon/control/control_parts.h"

namespace hdt::daemon {

class Joins : public GroupMakerUser {
 public:
  explicit Joins(ControlParts& daemon) : daemon_(daemon) {}

  // A process wants to join a group.
  void on_join(uint64_t session, const ipc::JoinRequest& request);
  // The session has ended: its joins need no answer.
  void on_session_ended(uint64_t session);
  // A Join of another daemon, for which this one is the coordinator.
  void on_join_message(ChannelId channel, const Join& join);
  // Whether the session is of the process that this daemon is embedded in.
  bool is_host(uint64_t session) const;
  // Whether a process other than the host waits for a join; whether one waits for a coordinator elsewhere.
  bool others_join() const;
  bool others_join_elsewhere() const;
  // Answers the joins of groups that meet here: "ask my successor".
  void refer_to_successor();
  void on_time();

  // GroupMakerUser
  Status host(const HostedPlace& place) override;
  void leave(const HostedPlace& place) override;
  Result<std::shared_ptr<UserLimits::Claim>> claim(uint32_t uid, UserLimits::What what) override;
  void create(uint32_t engine, GroupSpec spec) override;
  void post(std::function<void()> work) override { daemon_.mailbox.post(std::move(work)); }
  void fail(uint32_t engine, uint64_t group, const Outcome& outcome) override;
  bool joined(const LocalJoin& join, const MadeGroup& made) override;
  void refused(const LocalJoin& join, const Status& why) override;
  bool rank_failed(const MadeGroup& made, uint32_t local) override;
  std::vector<std::vector<RailEnd>> rails_for(const std::string& group_class) override;

 private:
  struct Joining {
    ipc::JoinRequest request;
    // for its seat
    std::shared_ptr<UserLimits::Claim> claim;
  };
  // Sends the failure of a join, or that the successor is to be asked (kInProgress).
  void refuse(uint64_t session, uint32_t request, const Status& why);
  // Gives a process its seat in a group that was made, and answers its join. joined() contains its
  // exceptions.
  void take_seat(const LocalJoin& join, const MadeGroup& made);
  // An embedded daemon logs once that its job has nodes on other hosts and no secret.
  void say_who_can_join(const std::vector<NodeInfo>& nodes);
  // Whether groups that meet at these addresses are coordinated here.
  bool coordinates(const ipc::JoinRequest& request) const;

  ControlParts& daemon_;
  // joins that have not been answered, by session and request
  std::map<std::pair<uint64_t, uint32_t>, Joining> joining_;
  // The claims of meeting places that were left: their sockets stay open for kLateMs for those who come late.
  std::deque<std::pair<Deadline, std::shared_ptr<UserLimits::Claim>>> late_places_;
  bool said_who_can_join_ = false;
};

}  // namespace hdt::daemon
