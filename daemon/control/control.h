// control.h: the control thread: sessions, group making, peers' control connections, status. Everything rare
// happens here; engines do the rest. One thread owns all of it; other threads reach it through the mailbox.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/config.h"
#include "base/mailbox.h"
#include "daemon/classes/class_change.h"
#include "daemon/control/control_network.h"
#include "daemon/diagnosis/inquiries.h"
#include "daemon/diagnosis/path_trials.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/heartbeat.h"
#include "daemon/links/backend_plan.h"
#include "daemon/membership/adoption.h"
#include "daemon/membership/group_maker.h"
#include "daemon/membership/rendezvous.h"
#include "daemon/membership/reunion.h"
#include "daemon/protocol/live_classes.h"
#include "daemon/sessions/client_sessions.h"
#include "daemon/sessions/user_limits.h"
#include "transports/secure/secure.h"

namespace hdt::daemon {

class Control : public SessionHandler {
 public:
  Control(Config config, uint32_t host_pid, std::string job_secret);
  ~Control() override;

  Status start();
  void stop(int64_t drain_ms, const std::string& why);
  // By another thread: true once nothing is under way that a successor could not go on with; false at the
  // deadline.
  bool prepare_handover(int64_t drain_ms);
  // From any thread: running groups follow the classes of this configuration; the rest of it is for the next
  // start.
  void reconfigure(Config config);
  // Of an embedded daemon, by another thread, when its process ends (daemon.h).
  bool leave_to_others(int64_t quiet_ms, int64_t drain_ms);
  std::string settings() const;
  // By one thread that is none of the daemon's (daemon.h). control_health.cc
  std::vector<std::string> hung_threads();

 private:
  // Who this daemon is, and whom it takes for peers.
  Status open_trust();
  Status open_security();
  Status open_devices();
  void run();
  void hear(int fd);
  void work();
  int sleep_ms() const;
  void watch_network();
  void reply(const std::vector<Rendezvous::Reply>& replies);
  // A message that cannot be sent ends its channel, so that nobody waits for it at the other end.
  void send(ChannelId channel, const ControlMessage& message);
  void on_control(ChannelId channel, std::span<const std::byte> message);
  void on_join_message(ChannelId channel, const Join& join);
  int64_t restart_ms() const;
  std::string figures_path() const { return config_.node.state_folder + "/figures.json"; }
  // What an engine has measured is kept.
  void keep(const std::function<void(KnownFigures&)>& measured);
  void keep_nodes();
  void say_who_can_be_a_peer() const;
  // Of an embedded daemon, once: its job has nodes on other hosts, and no secret.
  void say_who_can_join(const std::vector<NodeInfo>& nodes);
  // Answers with a memfd of the JSON's text.
  void send_json(uint64_t session, std::span<const std::byte> answer, const nlohmann::json& json);
  // Runs work on every engine and then `then` on this thread, when all have done it.
  void on_every_engine(const std::function<void(Engine&)>& work, std::function<void()> then);

  void on_opened(uint64_t session) override;
  void on_rendezvous(uint64_t session) override;
  void on_join(uint64_t session, const session::JoinRequest& request) override;
  void on_notice(uint64_t session, session::Kind kind, const session::GroupNotice& notice) override;
  void on_status(uint64_t session) override;
  // control_health.cc
  nlohmann::json own_use(size_t groups) const;
  void on_explain(uint64_t session, const session::ExplainRequest& request) override;
  void on_ask(uint64_t session, const session::Question& question) override;
  void answer_link(uint64_t session, const std::string& node);

  // control_changes.cc
  Status begin_change(uint64_t number, Config config, const std::string& settings, bool from_file);
  void open_for_change(std::function<void(const Status&)> then);
  // `all`: also for classes that stay as they are.
  EndsOfClass ends_of_change(bool all) const;
  void change_class(Config config, const std::string& settings, std::function<void(const Status&)> done);
  void on_proposed(uint64_t number, const Status& answer);
  void end_change(const Status& outcome);
  void adopt_change();
  void on_prepare(const NodeChange::Asker& asker, const ClassPrepare& prepare);
  void answer_askers(const Status& opened);
  void on_commit(uint64_t number, bool commit);
  void on_change_time();
  void answer_class(uint64_t session, const std::string& about);
  Status take_live_class(const std::string& group_class, const LiveClass& newer);
  Config with_classes_of(const Config& other) const;
  void reload();

  // control_diagnosis.cc
  // What an engine knew of a group that has ended.
  void remember(GroupFacts ended);
  // Who asks in the session; of one that is gone, somebody who sees nothing.
  Viewer viewer_in(uint64_t session);
  // `all_operations`: of each rank all that are recorded; else the recent ones. Of what the viewer sees.
  void local_facts(bool all_operations, const Viewer& viewer, std::function<void(NodeFacts)> then);
  // Of this node, first, and of all those it shares or shared groups with.
  void all_facts(bool all_operations, const Viewer& viewer, int64_t budget_ms,
                 std::function<void(std::vector<NodeFacts>)> then);
  void on_inquiry(ChannelId channel, const Inquiry& inquiry);
  void answer_why(uint64_t session, const std::string& group);
  void answer_trace(uint64_t session);
  // control_doctor.cc
  nlohmann::json description() const;
  std::vector<PathTrial> paths_to(const std::vector<RailEnd>& ends) const;
  void try_paths(std::vector<PathTrial> paths, std::function<void(std::vector<PathTrial>)> then);
  void answer_paths(ChannelId channel, const Inquiry& inquiry);
  void answer_doctor(uint64_t session, const std::string& about);
  void ask_paths(uint64_t session, nlohmann::json answer, const std::vector<std::string>& there,
                 std::vector<PathTrial> paths, std::vector<size_t> counts);
  // control_diagnosis.cc
  void on_deadline(uint64_t session, const Seat& seat, const session::GroupNotice& notice);

  void on_shared(uint64_t session, uint64_t number, const SharedBlock& block) override;
  void on_unshared(uint64_t number) override;
  Status on_adopt(uint64_t session, const session::AdoptRequest& request, UniqueFd segment) override;
  void on_open(uint64_t session, const session::MemoryRequest& request) override;
  void on_gone(uint64_t session, const std::string& how) override;
  void lose_seat(const MadeGroup& made, uint32_t local);
  void take_seat(const LocalJoin& join, const MadeGroup& made, uint32_t local);
  void on_joined(const LocalJoin& join, const MadeGroup& made, uint32_t local_index);
  GroupMaker::Services group_services();
  // control_restart.cc
  void ask_successor(uint64_t session, uint32_t request);
  bool is_host(uint64_t session) const;
  bool others_join() const;
  bool needed_by_others() const;
  bool coordinates(const std::string& rendezvous) const;
  bool can_leave();
  // Runs `question` on every engine, by a thread that is none of the daemon's; whether all say yes.
  bool ask_engines(const std::function<bool(Engine&)>& question);
  // The same on the control thread; false also where that does not answer before `until`.
  bool ask_control(std::function<bool()> question, Deadline until = Deadline::never());
  // Of groups that engines have. On the control thread, which waits for the engines: none of them is given
  // another group meanwhile.
  bool groups_are_made();
  bool may_hand_over();
  Reunion::Services reunion_services();
  NodeInfo self_for(const std::string& group_class) const;
  std::string cannot_be(const std::string& group_class, const NodeInfo& as_on, const Status& why) const;
  void on_successor(ChannelId channel, const Successor& word);

  Config config_;
  Config configured_;  // its classes are those of the file: without what was changed since
  LiveClasses live_;
  uint32_t host_pid_;
  std::string job_secret_;
  bool said_who_can_join_ = false;
  std::unique_ptr<UserLimits> limits_;  // before all that holds claims
  BackendPlan plan_;
  NodeInfo node_;
  std::shared_ptr<Trust> trust_;
  std::shared_ptr<const transport::secure::Security> security_;  // of data connections over tcp; null: none
  bool own_host_only_ = false;                                   // own_host.h
  Mailbox mailbox_;
  Heartbeat heartbeat_;
  UniqueFd epoll_;
  KnownFigures figures_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::unique_ptr<ControlNetwork> network_;
  Rendezvous rendezvous_;
  std::unique_ptr<GroupMaker> maker_;
  std::unique_ptr<Reunion> reunion_;
  Adoption adoption_;
  std::unique_ptr<Inquiries> inquiries_;
  // Of another daemon, before the addresses of its data ports: "can you reach these?"
  static constexpr std::string_view kPathsQuestion = "paths ";
  std::deque<GroupFacts> past_;  // the latest last
  size_t past_ranks_ = 0;
  std::set<uint64_t> in_diagnosis_;  // groups with a rank whose deadline has passed
  std::unique_ptr<ClientSessions> sessions_;
  std::optional<NodeChange> change_;
  std::vector<BackendNic> opened_;  // by the engines, in their order
  std::string devices_differ_;      // why the engines have not opened the same; empty: they have
  std::optional<Config> reload_;    // what the file says, until classes are so
  uint64_t reloads_ = 0;            // how often it was read
  Deadline reload_at_ = Deadline::never();
  int reload_tries_ = 0;
  uint64_t watched_ = 0;  // ControlNetwork::device_changes() when its descriptors were added to epoll_
  int64_t started_ns_ = 0;
  const TickMoment made_ = TickMoment::now();
  struct Joining {
    session::JoinRequest request;
    std::shared_ptr<UserLimits::Claim> claim;  // of the seat
  };
  std::map<std::pair<uint64_t, uint32_t>, Joining> joining_;  // not answered, by session and request
  // Of meeting places that were left: the sockets stay open a while for those who come late.
  std::deque<std::pair<Deadline, std::shared_ptr<UserLimits::Claim>>> late_places_;
  std::map<uint64_t, std::weak_ptr<const SharedMemory>>
      adopted_;           // memory of groups that were taken over, by id
  bool leaving_ = false;  // a successor takes over
  std::atomic<bool> stop_{false};
  std::thread thread_;
  PathTrials trials_;  // the last one: its threads post to the mailbox
};

// How a class shares NICs, by its name.
std::function<transport::SharePolicy(const std::string&)> policies_of(const Config& config);

}  // namespace hdt::daemon
