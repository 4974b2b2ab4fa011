// control.h: the control thread of a daemon and all that it owns: sessions of processes, groups that are
// being made, connections to other daemons, class changes, diagnosis. Everything rare happens here;
// engines do the rest.
//
// Threads. One thread, "hdt-control", runs run() and owns every member unless a comment says otherwise.
// Other threads reach it through the mailbox: engines post what they report, and the caller's threads
// post what they ask. Work for an engine is posted to that engine's mailbox. The control thread never
// blocks on an engine, except in groups_are_made(); no engine ever blocks on the control thread, so this
// cannot deadlock.
//
// Engines are asked in one of two ways: on_every_engine() continues on the control thread when all have
// answered; ask_engines() blocks its caller.
//
// Errors. Whatever throws while the control thread works for one session, connection or group ends that
// one only (base/contained.h). So work for one of them is always run inside contained(), and a timer's
// work that threw is still due.
//
// The class is implemented in several files by topic: control.cc (start, end, sessions' requests),
// control_loop.cc, control_answers.cc (hdtctl), control_changes.cc (classes), control_diagnosis.cc,
// control_doctor.cc, control_health.cc, control_restart.cc (a daemon that was started again),
// control_succession.cc (the end of an embedded daemon), control_trust.cc (who other daemons are).
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
#include "daemon/membership/peer_rediscovery.h"
#include "daemon/membership/rendezvous.h"
#include "daemon/protocol/live_classes.h"
#include "daemon/sessions/client_sessions.h"
#include "daemon/sessions/user_limits.h"
#include "transports/secure/secure.h"

namespace hdt::daemon {

class Control : public SessionHandler {
 public:
  // `host_pid`: the process that this daemon is embedded in; 0: hdtcommd. `job_secret`: what embedded.h
  // says of it. Opens nothing.
  Control(Config config, uint32_t host_pid, std::string job_secret);
  // Stops it, without a drain.
  ~Control() override;

  // Opens devices and sockets, starts the engines and the control thread. On failure nothing listens any
  // more; the destructor ends the rest.
  Status start();
  // Ends in order (Daemon::stop()). By another thread than the control thread; blocks. A second call does
  // nothing.
  void stop(int64_t drain_ms, const std::string& why);
  // Daemon::prepare_handover(), by another thread: true as soon as nothing is under way that a successor
  // could not go on with; false at the deadline. After true no joins are accepted any more.
  bool prepare_handover(int64_t drain_ms);
  // From any thread: running groups follow the classes of this configuration. The rest of it takes effect
  // at the next start only.
  void reconfigure(Config config);
  // Daemon::leave_to_others(), by another thread, when the host process of an embedded daemon ends.
  bool leave_to_others(int64_t quiet_ms, int64_t drain_ms);
  // Daemon::settings(). To be called while no class change can be under way: it reads config_ on the
  // caller's thread.
  std::string settings() const;
  // Daemon::hung_threads(), by one thread that is none of the daemon's. control_health.cc
  std::vector<std::string> hung_threads();

 private:
  // The three steps of start(), in order of dependence: identity and keys; the protection of payload;
  // devices, engines and the control network. open_devices() calls the first, which calls the second.
  Status open_trust();
  Status open_security();
  Status open_devices();
  // The loop of the control thread: sleep in epoll, handle the sockets that woke it, do the rest of the
  // work. control_loop.cc
  void run();
  // Handles one readable descriptor: the listener of sessions, a session's socket, or a process's pidfd.
  // Anything else (mailbox, network) needs nothing here, as work() looks at those in any case.
  void hear(int fd);
  // Runs what was posted, polls the network, and does what timers have made due.
  void work();
  // How long the thread may sleep, for epoll_wait(): until the earliest timer; -1: there is none.
  int sleep_ms() const;
  // Adds the network's descriptors to the epoll set, if any has changed.
  void watch_network();
  // Sends the messages that Rendezvous has returned.
  void reply(const std::vector<Rendezvous::Reply>& replies);
  // Sends a message. If there is no memory for it, its connection ends, so that nobody waits for it at
  // the other end.
  void send(ChannelId channel, const ControlMessage& message);
  // A message of another daemon: decodes it and hands it to its owner. A malformed one is logged and
  // ignored.
  void on_control(ChannelId channel, std::span<const std::byte> message);
  // A Join for this daemon as the coordinator. control_trust.cc
  void on_join_message(ChannelId channel, const Join& join);
  // How long, in ms, processes and other nodes are to wait for a successor of this daemon.
  // control_restart.cc
  int64_t restart_ms() const;
  std::string measurements_path() const { return config_.node.state_folder + "/measurements.json"; }
  // Adds to measurements_ what an engine has measured, and writes it to the state folder.
  void keep(const KnownMeasurements& news);
  // Writes the keys of nodes that were seen for the first time (Trust::keep()).
  void keep_nodes();
  // Logs at start who can be a peer of this daemon, if that may surprise.
  void say_who_can_be_a_peer() const;
  // An embedded daemon logs once that its job has nodes on other hosts and no secret.
  void say_who_can_join(const std::vector<NodeInfo>& nodes);
  // Sends `answer` with a memfd that holds the JSON's text.
  void send_json(uint64_t session, std::span<const std::byte> answer, const nlohmann::json& json);
  // Runs `work` on every engine's thread, and then `then` on this thread when all have done it. An
  // exception of `work` counts as done. Does not block.
  void on_every_engine(const std::function<void(Engine&)>& work, std::function<void()> then);

  // The requests of processes (SessionHandler); all on the control thread. control.cc, unless another file
  // is named.
  void on_opened(uint64_t session) override;
  void on_rendezvous(uint64_t session) override;
  void on_join(uint64_t session, const ipc::JoinRequest& request) override;
  void on_notice(uint64_t session, ipc::Kind kind, const ipc::GroupNotice& notice) override;
  void on_status(uint64_t session) override;
  // The resources that the daemon itself uses: descriptors, ports, threads, memory. control_health.cc
  nlohmann::json own_use(size_t groups) const;
  void on_explain(uint64_t session, const ipc::ExplainRequest& request) override;
  void on_ask(uint64_t session, const ipc::Question& question) override;
  // Answers `hdtctl explain link`: which links exist or were tried to a node, and why. control_answers.cc
  void answer_link(uint64_t session, const std::string& node);

  // control_changes.cc; class_change.h describes the protocol. A change is made ready here and on the
  // engines, and then committed or forgotten.
  //
  // Makes `change_` from a configuration: what this node would be after the change. kInvalidUsage:
  // another change is under way. Otherwise an error says why this node cannot be that.
  Status begin_change(uint64_t number, Config config, const std::string& settings, bool from_file);
  // Has the engines open the devices that `change_` needs in addition, and then calls `then`, unless the
  // change is over by then.
  void open_for_change(std::function<void(const Status&)> then);
  // A function that gives the ends of a class after the change. `all`: also for classes that stay as they
  // are; otherwise those give nothing.
  EndsOfClass ends_of_change(bool all) const;
  // Begins a change that this node asks all others for; `done` gets the outcome.
  void change_class(Config config, const std::string& settings, std::function<void(const Status&)> done);
  // An engine reports that all other nodes of its groups can change, or why one cannot.
  void on_proposed(uint64_t number, const Status& answer);
  // Commits or forgets a change that this node asked for, and reports the outcome.
  void end_change(const Status& outcome);
  // This node is now as `change_` says.
  void adopt_change();
  // An engine reports that another node asks for a change of one group.
  void on_prepare(const NodeChange::Asker& asker, const ClassPrepare& prepare);
  // Tells the engines that wait for it whether this node can change.
  void answer_askers(const Status& opened);
  // An engine reports that the node that asked has committed a change, or given it up.
  void on_commit(uint64_t number, bool commit);
  // The timers of a change and of a reload.
  void on_change_time();
  // Answers `hdtctl class set`.
  void answer_class(uint64_t session, const std::string& about);
  // Makes a class as another node has it, as a change of this node alone. Ok also means: not now, it will
  // be asked for again.
  Status take_live_class(const std::string& group_class, const LiveClass& newer);
  // config_ with the classes of another configuration.
  Config with_classes_of(const Config& other) const;
  // Tries to change all classes to those of the file that was read last.
  void reload();

  // control_diagnosis.cc, down to answer_trace().
  //
  // Keeps what an engine knew of a group that has ended, for hdtctl why and trace.
  void remember(GroupFacts ended);
  // The viewer who asks in a session. If the session has ended, one that sees nothing.
  Viewer viewer_in(uint64_t session);
  // Collects the facts of this node that the viewer may see. `all_operations`: all recorded operations of
  // each rank, else the recent ones.
  void local_facts(bool all_operations, const Viewer& viewer, std::function<void(NodeFacts)> then);
  // The facts of this node, first, and of all nodes with which it shares or shared groups. A node that
  // has not answered within `budget_ms` is there as one that is silent.
  void all_facts(bool all_operations, const Viewer& viewer, int64_t budget_ms,
                 std::function<void(std::vector<NodeFacts>)> then);
  // Answers a question of another daemon.
  void on_inquiry(ChannelId channel, const Inquiry& inquiry);
  // Answers `hdtctl why`; `group` is a public name, its first 8 digits, a class, or "" for all.
  void answer_why(uint64_t session, const std::string& group);
  // Answers `hdtctl trace`.
  void answer_trace(uint64_t session);
  // This node's description of itself for hdtctl doctor. control_doctor.cc, as the next five.
  nlohmann::json description() const;
  // The trials from each tcp NIC of this node to each of these ends.
  std::vector<PathTrial> paths_to(const std::vector<RailEnd>& ends) const;
  // Runs trials on threads of their own, and then `then` on the control thread.
  void try_paths(std::vector<PathTrial> paths, std::function<void(std::vector<PathTrial>)> then);
  // Answers another daemon's "paths" question.
  void answer_paths(ChannelId channel, const Inquiry& inquiry);
  // Answers `hdtctl doctor`: asks the daemons at these addresses for their descriptions, and goes on with
  // ask_paths().
  void answer_doctor(uint64_t session, const std::string& about);
  // Tries the paths to the peers while the peers `there` try those back; `counts` says how many of
  // `paths` belong to each peer. Then sends `answer`.
  void ask_paths(uint64_t session, nlohmann::json answer, const std::vector<std::string>& there,
                 std::vector<PathTrial> paths, std::vector<size_t> counts);
  // A rank's deadline has passed: fails its group with the verdict. control_diagnosis.cc
  void on_deadline(uint64_t session, const Seat& seat, const ipc::GroupNotice& notice);

  // More of SessionHandler. on_adopt() is in control_restart.cc.
  void on_shared(uint64_t session, uint64_t number, const SharedBlock& block) override;
  void on_unshared(uint64_t number) override;
  Status on_adopt(uint64_t session, const ipc::AdoptRequest& request, UniqueFd segment) override;
  void on_open(uint64_t session, const ipc::MemoryRequest& request) override;
  void on_gone(uint64_t session, const std::string& how) override;
  // Tells the engine that the rank with this local index will never take its seat.
  void lose_seat(const MadeGroup& made, uint32_t local);
  // Gives a process its seat in a group that was made, and answers its join. on_joined() contains its
  // exceptions.
  void take_seat(const LocalJoin& join, const MadeGroup& made, uint32_t local);
  void on_joined(const LocalJoin& join, const MadeGroup& made, uint32_t local_index);
  GroupMaker::Services group_services();
  // Answers a join: "ask my successor". control_succession.cc, as the next five.
  void ask_successor(uint64_t session, uint32_t request);
  // Whether the session is of the process that this daemon is embedded in.
  bool is_host(uint64_t session) const;
  // Whether a process other than the host waits for a join.
  bool others_join() const;
  // Whether a process other than the host has a rank or waits for one.
  bool needed_by_others() const;
  // Whether groups that meet at these addresses are coordinated here.
  bool coordinates(const std::string& rendezvous) const;
  // Whether nothing is under way that a successor could not go on with, when an embedded daemon ends.
  bool can_leave();
  // Runs `question` on every engine, one after the other, and blocks until all have answered. True: all
  // said yes. Not by an engine's thread. control_loop.cc
  bool ask_engines(const std::function<bool(Engine&)>& question);
  // The same on the control thread, by another thread. False also if it does not answer before `until`.
  // control_succession.cc
  bool ask_control(std::function<bool()> question, Deadline until = Deadline::never());
  // Whether every group that an engine has is made in full (EngineGroup::is_made). On the
  // control thread, which waits for the engines: so none of them is given another group meanwhile.
  // control_restart.cc, as the rest.
  bool groups_are_made();
  // Whether this daemon may end for a successor now. If yes, it accepts no join from then on.
  bool may_hand_over();
  PeerRediscovery::Services rediscovery_services();
  // This node with its ends for a class.
  NodeInfo self_for(const std::string& group_class) const;
  // The error when this node cannot have the class as another node has it.
  std::string cannot_be(const std::string& group_class, const NodeInfo& as_on, const Status& why) const;
  // Another node's daemon was started again and wants to go on with a group.
  void on_successor(ChannelId channel, const Successor& word);

  // what holds now; changed by class changes only
  Config config_;
  // config_ with the classes as in the file: without what `hdtctl class set` has changed since
  Config configured_;
  // the difference between the two, for other nodes
  LiveClasses live_;
  uint32_t host_pid_;
  std::string job_secret_;
  bool said_who_can_join_ = false;
  // declared before everything that holds claims, so that it ends after all of them
  std::unique_ptr<UserLimits> limits_;
  // which backends and NICs this node uses, for each class
  BackendPlan plan_;
  // this node; `rails` grow when a change opens more devices
  NodeInfo node_;
  std::shared_ptr<Trust> trust_;
  // protects data connections over tcp; null: nothing does
  std::shared_ptr<const transport::secure::Security> security_;
  // this daemon has peers on its own host only (own_host.h)
  bool own_host_only_ = false;
  Mailbox mailbox_;
  Heartbeat heartbeat_;
  // the listener, sessions, pidfds, the mailbox, and the network's descriptors
  UniqueFd epoll_;
  // measured rates, as in the state folder
  KnownMeasurements measurements_;
  // What engines report. Its functions run on the engines' threads, so each only posts. control_loop.cc
  class FromEngines final : public EngineEvents {
   public:
    explicit FromEngines(Control& control) : control_(control) {}
    void on_prepare(const NodeChange::Asker& asker, const ClassPrepare& question) override;
    void on_commit(uint64_t change, bool commit) override;
    void on_proposed(uint64_t change, const Status& answer) override;
    void on_measured(const KnownMeasurements& news) override;
    void on_back(uint64_t group, uint32_t node) override;
    void on_ended(GroupFacts facts) override;

   private:
    Control& control_;
  };
  FromEngines from_engines_{*this};
  // filled in by open_devices(); does not change afterwards
  std::vector<std::unique_ptr<Engine>> engines_;
  std::unique_ptr<ControlNetwork> network_;
  Rendezvous rendezvous_;
  std::unique_ptr<GroupMaker> maker_;
  std::unique_ptr<PeerRediscovery> rediscovery_;
  Adoption adoption_;
  std::unique_ptr<Inquiries> inquiries_;
  // The question to another daemon "can you reach these data ports?"; their addresses follow.
  static constexpr std::string_view kPathsQuestion = "paths ";
  // groups that have ended, the latest last
  std::deque<GroupFacts> past_;
  // the number of their ranks of this node
  size_t past_ranks_ = 0;
  // ids of groups with a rank whose deadline has passed, while facts are collected
  std::set<uint64_t> in_diagnosis_;
  std::unique_ptr<ClientSessions> sessions_;
  // the change under way, this node's own or another's; at most one
  std::optional<NodeChange> change_;
  // what the engines have opened, in their order; it only grows
  std::vector<BackendNic> opened_;
  // why the engines have not opened the same devices; then this node takes part in no more changes. "":
  // they have
  std::string devices_differ_;
  // what the file says, until the classes are so
  std::optional<Config> reload_;
  // how often the file was read
  uint64_t reloads_ = 0;
  // when reload() tries again, and how many more times
  Deadline reload_at_ = Deadline::never();
  int reload_tries_ = 0;
  // ControlNetwork::device_changes() when its descriptors were added to epoll_
  uint64_t watched_ = 0;
  int64_t started_ns_ = 0;
  // the first of two moments from which the recorder's ticks are translated into now_ns()
  const TickMoment made_ = TickMoment::now();
  struct Joining {
    ipc::JoinRequest request;
    // for its seat
    std::shared_ptr<UserLimits::Claim> claim;
  };
  // joins that have not been answered, by session and request
  std::map<std::pair<uint64_t, uint32_t>, Joining> joining_;
  // The claims of meeting places that were left: their sockets stay open for kLateMs for those who come
  // late.
  std::deque<std::pair<Deadline, std::shared_ptr<UserLimits::Claim>>> late_places_;
  // memory of groups that were taken over, by group id
  std::map<uint64_t, std::weak_ptr<const SharedMemory>> adopted_;
  // a successor takes over: joins are refused
  bool leaving_ = false;
  // ends run(); any thread
  std::atomic<bool> stop_{false};
  std::thread thread_;
  // declared last, so that its threads, which post to the mailbox, end first
  PathTrials trials_;
};

// A function that gives a class's priority and weight by the class's name. It holds a copy of the
// configuration, so any thread may call it.
PolicyOfClass policies_of(const Config& config);

}  // namespace hdt::daemon
