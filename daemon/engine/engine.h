// engine.h: an engine thread, on which everything frequent of the daemon happens. An engine owns
// backends and their devices, the links to the engines of the same index on other nodes, and the groups
// that were given to it. No other thread touches any of that, so the data path has no locks. The control
// thread talks to an engine by post(); an engine answers through the functions in EngineOptions, which
// post to the control thread.
//
// A round (work()): posted work, wake pages of sessions, groups that were touched, devices, touched
// groups again, NICs that are shared, acknowledgements, timers, and at the end whatever died in this
// round.
//
// Sleeping: before it sleeps in epoll the engine sets `asleep` in the wake page (`WakePage`) of every
// session, and looks once more. A process sets its attention bit first, and then looks at `asleep`. So
// one of the two sees the other. An engine with nothing to do sleeps without a timeout.
//
// Exceptions: work for one group, link or connection runs in contain() or contained() and ends only that
// one when it throws (base/contained.h).
//
// Files: engine.cc (thread, sessions, groups), engine_choice.cc (which link a group takes),
// engine_links.cc (handshakes, what links report), engine_rails.cc (dialling), engine_changes.cc (class
// changes), engine_restart.cc (successors of daemons), engine_contained.cc (failures), engine_probes.cc
// (measurements), engine_status.cc and engine_facts.cc (reports).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/contained.h"
#include "base/mailbox.h"
#include "daemon/classes/class_change.h"
#include "daemon/engine/heartbeat.h"
#include "daemon/group/engine_group.h"
#include "daemon/links/backend_plan.h"
#include "daemon/links/measurements_file.h"
#include "daemon/links/nic_watch.h"
#include "daemon/links/peer_link.h"
#include "daemon/protocol/stranger_log.h"
#include "daemon/protocol/viewer.h"
#include "daemon/sessions/session_link.h"
#include "transports/transport.h"

namespace hdt::daemon {

// What Control gives an engine. The functions are called on the engine's thread, except for make_backend
// by start().
struct EngineOptions {
  uint32_t index = 0;  // the engine's number; also that of the engines that it is linked with
  NodeId node;
  std::string node_name;
  std::shared_ptr<Trust> trust;  // what handshakes prove and check
  std::vector<BackendNic> nics;  // the NICs to open; grows by open_more()
  // Makes a backend for this engine alone.
  std::function<Result<std::unique_ptr<transport::Backend>>(const std::string& name)> make_backend;
  int64_t connect_ms = 10'000;            // of a dial before a link is up, and of an accepted handshake
  transport::StrangerLimits strangers{};  // of each backend
  transport::LinkOptions link;            // fragment size, checksum, time-outs (link.h)
  // How a class shares NICs with others.
  std::function<transport::SharePolicy(const std::string& group_class)> policy_of;
  int64_t spin_ns = 0;      // how long it looks for work before it sleeps
  int64_t restart_ms = 0;   // how long other nodes are to wait for a successor of this daemon; 0: not
  uint32_t host_pid = 0;    // the process that hosts the daemon; 0: none
  KnownMeasurements known;  // measured before, by this daemon or an earlier one
  // Class changes. on_prepare: another node asks whether this one can change. on_commit: such a change
  // is decided; false: it is given up. on_proposed: all nodes can do what propose() asked for, or the
  // reason why not.
  std::function<void(const NodeChange::Asker&, const ClassPrepare&)> on_prepare;
  std::function<void(uint64_t change, bool commit)> on_commit;
  std::function<void(uint64_t change, const Status&)> on_proposed;
  // What was measured: the function enters it into what the daemon keeps.
  std::function<void(std::function<void(KnownMeasurements&)>)> on_measured;
  // A group works again with a node whose daemon was lost.
  std::function<void(uint64_t group, uint32_t node)> on_back;
  // What is known of a group that has ended and is about to be destroyed.
  std::function<void(GroupFacts)> on_ended;
};

const char* state_text(transport::RailStatus::State state);  // "up"
// The name of the NIC that has the local address of a rail; "": none of the ends has it.
std::string nic_at(const std::vector<RailEnd>& ends, const std::string& backend, const std::string& local);

// See the head of this file. Owner: Control. As LinkObserver it hears from its links.
class Engine : public transport::LinkObserver {
 public:
  explicit Engine(EngineOptions options);
  ~Engine() override;  // as stop()

  // Opens the devices and starts the thread; kSystem or the backend's errors. Afterwards rail_ends()
  // says where peers connect to: one end for each NIC.
  Status start();
  // Ends the thread after a goodbye to all peers, within 200 ms, and waits for it.
  void stop();
  // Ends as if the process had been killed: nothing is sent to anyone, and other nodes wait for a successor.
  void abandon();
  const std::vector<RailEnd>& rail_ends() const { return rail_ends_; }
  // Runs `work` on the engine's thread. Any thread.
  void post(std::function<void()> work) { mailbox_.post(std::move(work)); }
  // Whether the engine has passed its loop since ask_alive() was called last. Both for one thread that
  // is not the engine's.
  bool is_alive() const { return heartbeat_.has_passed(); }
  void ask_alive();

  // --- the rest on the engine's thread only ---
  //
  // A process has connected, or has gone without ranks.
  void add_session(std::shared_ptr<SessionLink> session);
  void remove_session(uint64_t session);
  // Memory that the process of `session` shares in the group in which it has the seat `handle`.
  void add_memory(uint64_t session, uint64_t number, uint32_t handle, std::shared_ptr<SharedMemory> memory);
  // The memory is not shared any more; groups unregister it when no call uses it.
  void remove_memory(uint64_t number);
  // Makes the group and connects it. Calls spec.on_ready with the reason if that fails.
  void create_group(GroupSpec spec);
  // `handle` of `session` has the seat of local rank `local` in the group: its attention bits mean this
  // group. A session that is gone means that the rank is lost.
  void attach(uint64_t session, uint32_t handle, uint64_t group, uint32_t local);
  // The rank has departed, or reports a failure of its group.
  void leave(uint64_t session, uint32_t handle);
  void fail(uint64_t session, uint32_t handle, Code code, int32_t rank, const std::string& text);
  // The process of `session` has ended, as `how` says: each of its ranks that has not departed has
  // failed.
  void session_lost(uint64_t session, const std::string& how);
  // Fails all groups with ranks here, or one group, here and on all nodes.
  void fail_all(Code code, const std::string& text);
  void fail_group(uint64_t group, Code code, int32_t rank, const std::string& text);
  uint32_t index() const { return options_.index; }
  // The successor of a daemon takes the place of node `from` in a group of this engine, where this node
  // is `me`. `own` and `info` say where the two can be reached as the class is now. Nothing: the engine
  // has no such group. Otherwise `failure` says why the group does not go on with that node; OK: it does.
  struct Met {
    Status failure;
    int32_t rank = -1;
  };
  // `tell_failure`: connect a group that has failed here as well, so that the other node hears of it.
  std::optional<Met> meet(uint64_t group, uint32_t me, uint32_t from, const NodeInfo& own,
                          const NodeInfo& info, bool tell_failure = false);
  // Class changes (class_change.h). open_more() opens NICs that were not used before, behind those that
  // are open; if one cannot be opened, those before it stay.
  Status open_more(const std::vector<BackendNic>& nics);
  // Changes how classes share NICs, at once.
  void set_policies(std::function<transport::SharePolicy(const std::string&)> policy_of);
  // Asks all nodes of all running groups for which `ends_of` has ends; on_proposed gets the answer.
  void propose(uint64_t change, const std::string& settings, const EndsOfClass& ends_of);
  // This node's own answer for a group, after on_prepare: where it can be reached, or why it cannot
  // change.
  void prepare_move(uint64_t group, uint64_t change, const Result<std::vector<RailEnd>>& ends);
  // The decision on a change that this node has asked for.
  void finish_change(uint64_t change, bool commit);
  // No call is under way.
  bool quiet() const;
  // No group's making needs anything of this daemon (EngineGroup::is_made()).
  bool groups_are_made() const;
  // No write is pending on any link (Link::pending_writes()).
  bool links_idle() const;
  // Other nodes have all that departed ranks have sent; no successor has the memory of these ranks.
  bool departed_are_done() const;
  // Ranks of the host's process have departed from a group of several nodes in which other ranks of this
  // node still are.
  bool host_left_before_others() const;
  // For hdtctl status: the groups that the viewer sees, the links that these use, and how many more
  // there are.
  nlohmann::json status(const Viewer& viewer) const;
  // For diagnosis (facts.h): all groups, and all rails; not complete() yet.
  std::vector<GroupFacts> group_facts() const;
  std::vector<RailFacts> rail_facts() const;
  // What groups that are being made lack, by the group's id.
  std::map<std::string, std::vector<std::string>> lacks() const;
  // For hdtctl explain: the algorithm that the call takes, and why, in each group with this name or of
  // this class that the viewer sees (daemon/group/explanation.h).
  nlohmann::json explain(const std::string& group, const ipc::Call& call, const Viewer& viewer);
  // The candidates for the link to that node, and the choice, for each class with groups on it now or
  // lately.
  nlohmann::json explain_link(const std::string& node, const Viewer& viewer) const;

 private:
  // A rank of a session.
  struct Seat {
    EngineGroup* group = nullptr;
    uint32_t local = 0;
  };
  // A process as this engine knows it. Its entry goes with the process.
  struct Session {
    std::shared_ptr<SessionLink> link;
    std::unordered_map<uint32_t, Seat> seats;  // by handle
    // The highest handle so far. The process's handles are spread over all engines, so the number of seats
    // here says nothing about it.
    uint32_t highest = 0;
  };
  // A connection, from its first event to its release. `peer` is null until an accepted one is known,
  // and after its link has gone.
  struct Rail {
    enum class Origin : uint8_t { kAccepted, kDialled, kAsking };
    PeerLink* peer = nullptr;
    size_t device = 0;
    std::unique_ptr<Greeting> greeting;  // null: the connection is ready
    Origin origin = Origin::kAccepted;
  };

  // engine.cc
  // The thread's loop: rounds, looks for `spin_ns`, sleeps.
  void run();
  // One round; true if anything was done.
  bool work();
  // Closes all links in order.
  void say_goodbye();
  // Reads the attention bits of all wake pages, and touches the groups that they mean.
  bool hear_sessions();
  // progress() of every touched group. What is touched meanwhile waits for the next call.
  bool progress_touched();
  void set_asleep(bool asleep);
  // What is due now, and how long nothing is due (ms for epoll_wait; -1: for ever).
  void run_timers();
  int sleep_ms() const;
  // null: there is no such seat.
  Seat* seat(uint64_t session, uint32_t handle);
  // The group has something to do: progress() follows in this round or the next one.
  void touch(EngineGroup* group);
  // Destroys groups that are finished.
  bool reap_groups();
  void watch_device(const transport::Device& device);

  GroupFacts facts_of(const EngineGroup& group) const;
  // The process of a local rank, as its session's socket says; a rank's own statement counts in its PID
  // namespace only. 0: it has no session any more, or no number here.
  uint32_t pid_of(const EngineGroup& group, uint32_t local) const;
  // The memory, if the process of that rank shares it in that group; otherwise null.
  std::shared_ptr<SharedMemory> find_memory(uint64_t group, uint32_t local, uint64_t number);

  // engine_choice.cc
  using GroupNode = std::pair<uint64_t, uint32_t>;  // a group's id, and the number of a node in it
  // Chooses a link to every other node, or to one, anew.
  void connect_group(EngineGroup& group);
  void connect_node(EngineGroup& group, uint32_t node);
  // Dialer: takes or dials the link over the best candidate that has not failed. When all have failed,
  // the group fails.
  void try_candidates(EngineGroup& group, uint32_t node);
  // The group takes this link.
  void take_link(EngineGroup& group, uint32_t node, PeerLink& peer);
  // The link has not come up: groups that wanted it try the next candidate.
  void candidate_failed(const LinkId& link, const Status& why);
  // The group has ended: its choices are kept for explain_link().
  void forget_choices(const EngineGroup& group);
  // Fails groups that a node was to connect in time and has not.
  void give_up_on_dialers();
  Deadline next_dialer_time() const;
  // What may connect the two nodes, best first, by the NICs and addresses that they have now.
  std::vector<LinkCandidate> candidates_between(const NodeInfo& own, const NodeInfo& peer,
                                                bool own_is_first) const;
  // Null: no device could begin; the candidate says why.
  PeerLink* dial_candidate(const NodeInfo& peer, const std::string& group_class, LinkCandidate& candidate,
                           bool last);
  // A link to the node over the very paths of the candidate; null: none.
  PeerLink* link_over(const NodeId& node, const std::string& group_class, const LinkCandidate& candidate);
  // Makes the entry of a link; it has no rail yet.
  PeerLink& add_peer(const LinkId& id, const std::string& name, uint32_t backend,
                     const std::string& group_class);
  // The key of the group's segment for that backend, with which the node may write there.
  Result<transport::RegionKey> group_key(uint64_t group, uint32_t backend, const NodeId& node);
  // The node may write to nothing of the group any more.
  void withdraw(EngineGroup& group, const NodeId& node);
  transport::Device& device_of(uint32_t backend);

  // engine_links.cc
  //
  // The group uses the link from now on; messages that came early are delivered.
  void tell_link_up(EngineGroup& group, uint32_t node, PeerLink& peer);
  // An event of a connection: of its handshake here, of a rail in its link.
  void on_completion(size_t device, const transport::Completion& completion);
  // A message of the handshake. Refuses whoever is not the one that is expected.
  void on_greeting(Rail& rail, transport::Connection& connection, std::span<const std::byte> message);
  // The connection is ready: it becomes a rail of its link.
  void adopt(Rail& rail, transport::Connection& connection);
  // The link that an accepted connection belongs to, made if there is none; null: it was refused.
  PeerLink* link_of(Rail& rail, transport::Connection& connection);
  // Closes a connection in its handshake, and notes why.
  void refuse(Rail& rail, transport::Connection& connection, const std::string& why);
  // The node says that it has no rail of this link: all are given up and dialled again.
  void redial(const NodeId& node, uint32_t link);
  // The part in the NIC of a rail of this class.
  std::unique_ptr<transport::NicShare::Lane> lane_on(size_t device, const std::string& group_class);
  // Lets links hand over fragments in turn on NICs that several classes share.
  void share_nics();
  bool is_used(const PeerLink& peer) const;  // by a group that still needs the node
  // Removes the link's entry, and informs all who use it.
  void forget_peer(PeerLink& peer, const Status& why);
  // Work for one group: what throws ends that one (base/contained.h).
  template <typename Work>
  void contain(EngineGroup& group, Work&& work) {
    (void)contained("a group", work, [&group](const std::string& why) { group.give_up(why); });
  }
  // create_group() without its care for exceptions.
  void make_group(GroupSpec spec);
  // engine_contained.cc
  void contain_completion(size_t device, const transport::Completion& completion);
  // For a link whose own books may be half written: it is not asked for anything any more.
  void break_link(PeerLink& peer, const std::string& why);
  void break_torn_links();
  // Makes a link in the place of one that was broken here, to let the other end hear of it.
  void say_broken(const LinkId& id, const std::string& name, uint32_t backend, const std::string& group_class,
                  std::vector<RailPath> paths);
  // Counts frames for a group that the peer is not in, and answers GroupUnknown.
  void drop_stray(PeerLink& peer, uint64_t group);
  void answer_stray(PeerLink& peer, uint64_t group);
  void answer_failed(EngineGroup& group, uint32_t node, PeerLink& peer);
  void remember_ended(uint64_t group) { ended_[next_ended_++ % ended_.size()] = group; }
  bool has_ended(uint64_t group) const {
    return std::find(ended_.begin(), ended_.end(), group) != ended_.end();
  }
  void keep_early(const PeerLink& peer, const EngineMessage& note);

  // engine_changes.cc. open_nic() opens one NIC and listens.
  Status open_nic(const BackendNic& nic);
  // Reports to Control when all nodes can do what this one proposes.
  void check_proposed();
  // Finds the candidates for the new link to the node, when both ends are known.
  void find_ways(EngineGroup& group, uint32_t node);
  // Dialer: takes or dials the new link over the next candidate; answers no if there is none.
  void try_way(EngineGroup& group, uint32_t node);
  // A link has come up, or has not: what changes that wait for it do.
  void move_link_made(const PeerLink& peer);
  void move_link_failed(const LinkId& link, const Status& why);
  // Answers yes when every link that this node dials for the change is up.
  void check_move(EngineGroup& group);
  // Sends this node's answer to the one that asks.
  void answer_move(EngineGroup& group, const Status& answer);
  // On the node that asks: that node can, or cannot.
  void on_move_answer(EngineGroup& group, uint32_t node, uint64_t change, const Status& answer);
  // Messages of changes that are over come too late and have no effect.
  bool is_over(uint64_t change) const;
  void remember_over(uint64_t change);
  // Forgets a change of which ends have come, but no question, when another one begins.
  void forget_orphan(uint64_t group, uint64_t change);
  // Gives a change up: its links end if nobody else needs them.
  void forget_move(uint64_t group);
  // Commits a change: offers the new links to the group.
  void move_group(EngineGroup& group);
  void set_ends(LinkChoice& choice, const std::vector<RailEnd>& ends) const;
  // The choice takes this link; the one before ends when nobody uses it.
  void supersede(LinkChoice& choice, const PeerLink& by);
  // The end that does not dial moves to the link on which the dialer has sent its hello.
  void follow(EngineGroup& group, uint32_t node, PeerLink& peer, const transport::RegionKey& their_region);
  void on_change_note(EngineGroup& group, uint32_t node, const EngineMessage& note);
  // Ends links that no group uses any more.
  void retire_links();

  // engine_restart.cc
  // The successor of a daemon takes its place in the group, when no link to that is left.
  void welcome(EngineGroup& group, uint32_t node);
  void stop_moving(EngineGroup& group, uint32_t node);  // gives up class changes with a node

  // engine_probes.cc. Where bursts land, for that node.
  Result<transport::RegionKey> probe_landing(uint32_t backend, const NodeId& node);
  // Under which name a link's measurements are kept.
  std::string measured_as(const PeerLink& peer) const;
  // Measures at the first call, which takes some 40 ms.
  const ipc::MemoryRates& memory_rates();
  // Begins, ends and reports the measurement of a link.
  void make_probe(PeerLink& peer);
  // Begins with the next link that the group has to measure.
  void measure_next(EngineGroup& group);
  void on_probe_note(PeerLink& peer, const ProbeMessage& note);
  void finish_probe(PeerLink& peer);
  void check_probe(PeerLink& peer);
  void run_probe_timers();
  Deadline next_probe_time() const;

  void on_sent(transport::Link& link, uint64_t token) override;
  void on_arrived(transport::Link& link, const transport::LinkHeader& header, uint64_t bytes) override;
  void on_message(transport::Link& link, std::span<const std::byte> message) override;
  void on_down(transport::Link& link, const Status& reason) override;

  // engine_rails.cc
  // False: no path can even be tried.
  bool dial(PeerLink& peer);
  // Dials spare paths if no rail is up.
  void dial_spares(PeerLink& peer);
  // Never throws: a path that cannot be dialled has failed.
  void dial_path(PeerLink& peer, RailPath& path);
  // Dials, and enters the connection into rails_.
  void begin_path(PeerLink& peer, RailPath& path);
  // Asks whether the peer's daemon still listens, without making a rail.
  void ask(PeerLink& peer);
  // A connection that this end has made is gone. `elsewhere`: somebody else answered.
  void on_connection_lost(PeerLink& peer, const transport::Connection& connection, Rail::Origin origin,
                          const Status& why, bool elsewhere);
  void hear_nics();  // what the kernel says of NICs
  void run_link_timers();
  PeerLink& peer_of(const transport::Link& link);  // must be in peers_
  void on_rail_up(transport::Link& link, const transport::Connection& connection,
                  const transport::RailStatus& status) override;
  void on_rail_down(transport::Link& link, const transport::Connection& connection,
                    const transport::RailStatus& status, const std::string& lost) override;
  // null: this engine has no such group.
  EngineGroup* group_of(uint64_t id);
  // The node index of the peer in the group, or nothing if it is no member.
  std::optional<uint32_t> node_in(const EngineGroup& group, const PeerLink& peer) const;

  EngineOptions options_;
  Mailbox mailbox_;
  Heartbeat heartbeat_;
  UniqueFd epoll_;
  NicWatch nic_watch_;
  struct OpenBackend {
    std::string name;
    std::unique_ptr<transport::Backend> backend;
    size_t first_device = 0;
    std::optional<transport::RegionKey> probe_landing;  // where bursts land; registered at the first link
  };
  std::vector<OpenBackend> backends_;
  std::vector<std::unique_ptr<transport::Device>> devices_;  // by number; open for the engine's life
  std::vector<uint32_t> backend_of_;                         // by device
  std::vector<RailEnd> rail_ends_;                           // by device
  std::map<std::string, transport::NicShare> nic_shares_;    // by address: several backends may use one NIC
  size_t first_turn_ = 0;                                    // of the links, in share_nics()
  std::vector<transport::Completion> completions_;           // of one device's poll()
  std::unordered_map<transport::Connection*, Rail> rails_;   // every connection that is not released
  std::map<LinkId, std::unique_ptr<PeerLink>> peers_;        // links, up or not
  uint32_t next_link_ = 1;                   // the number of the next link that this end dials
  std::map<GroupNode, LinkChoice> choices_;  // by group and node
  std::map<uint64_t, GroupMove> moves_;      // by group
  std::deque<uint64_t> over_;                // the last changes that have ended
  std::optional<uint64_t> proposing_;        // the change that this node asks the others for
  std::map<std::pair<std::string, std::string>, LinkChoice>
      past_choices_;                          // by node and class, of groups that ended
  std::map<GroupNode, NodeInfo> successors_;  // that have come while links to their predecessors were open
  StrangerLog stranger_log_;
  std::vector<std::unique_ptr<PeerLink>> retired_;  // links that are down, until the end of the round
  ProbeMemory probe_memory_;
  std::map<uint64_t, Session> sessions_;  // by number
  struct Memory {
    uint64_t session;
    uint32_t handle;
    std::shared_ptr<SharedMemory> memory;
  };
  std::unordered_map<uint64_t, Memory> memories_;     // memory that processes share, by number
  std::vector<std::unique_ptr<EngineGroup>> groups_;  // by group slot; empty slots are reused
  std::unordered_map<uint64_t, EngineGroup*> group_by_id_;
  struct GroupMemory {
    std::shared_ptr<SharedMemory> memory;
    std::map<uint32_t, transport::RegionKey> keys;  // by backend
  };
  std::unordered_map<uint64_t, GroupMemory> group_memory_;  // by group: the registrations of its segment
  struct EarlyMessage {
    LinkId from;
    EngineMessage note;
    Deadline until;
  };
  std::vector<EarlyMessage> early_;           // hellos and failures of groups that are not made here yet
  uint64_t stray_frames_ = 0;                 // for groups that their sender is not in
  Deadline stray_again_ = Deadline::never();  // when to say so again
  std::array<uint64_t, 256> ended_{};         // ids of the last groups that ended
  size_t next_ended_ = 0;
  std::vector<EngineGroup*> touched_;      // groups that have something to do
  std::vector<EngineGroup*> progressing_;  // by progress_touched()
  bool look_at_all_ = false;               // after a round that threw
  std::atomic<bool> stop_{false};
  std::atomic<bool> silent_{false};  // it ends without a goodbye
  std::thread thread_;
};

}  // namespace hdt::daemon
