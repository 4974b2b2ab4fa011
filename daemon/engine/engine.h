// engine.h: an engine thread. It owns backends and their devices, the links to the same-numbered engines of
// other nodes, and the groups that were given to it; nothing of that is touched by another thread, so the
// data path has no locks. The control thread talks to it by post().
//
// Sleeping: before it sleeps in epoll the engine sets `asleep` in every session's page and looks once more; a
// process sets its attention bit first and then looks at `asleep`. One of the two sees the other. An engine
// with nothing to do sleeps without a timeout.
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
#include "daemon/links/figures_file.h"
#include "daemon/links/nic_watch.h"
#include "daemon/links/peer_link.h"
#include "daemon/protocol/stranger_log.h"
#include "daemon/protocol/viewer.h"
#include "daemon/sessions/session_link.h"
#include "transports/transport.h"

namespace hdt::daemon {

struct EngineOptions {
  uint32_t index = 0;
  NodeId node;
  std::string node_name;
  std::shared_ptr<Trust> trust;
  std::vector<BackendNic> nics;
  // Makes a backend for this engine alone.
  std::function<Result<std::unique_ptr<transport::Backend>>(const std::string& name)> make_backend;
  int64_t connect_ms = 10'000;
  transport::StrangerLimits strangers{};  // of each backend
  transport::LinkOptions link;
  // How a class shares NICs with others.
  std::function<transport::SharePolicy(const std::string& group_class)> policy_of;
  int64_t spin_ns = 0;
  int64_t restart_ms = 0;  // so long a successor is waited for
  uint32_t host_pid = 0;   // of the process that the daemon is embedded in; 0: none
  KnownFigures known;
  // Called on the engine's thread. Changes of classes: of another node, which this one is asked for, and the
  // end of it; and how a change went that this node asked for.
  std::function<void(const NodeChange::Asker&, const ClassPrepare&)> on_prepare;
  std::function<void(uint64_t change, bool commit)> on_commit;
  std::function<void(uint64_t change, const Status&)> on_proposed;
  // Called on the engine's thread with what it has measured.
  std::function<void(std::function<void(KnownFigures&)>)> on_measured;
  // Called on the engine's thread: a group works again with a node whose daemon was lost.
  std::function<void(uint64_t group, uint32_t node)> on_back;
  // Called on the engine's thread with what is known of a group that ends.
  std::function<void(GroupFacts)> on_ended;
};

const char* state_text(transport::RailStatus::State state);  // "up"
// The NIC that has the local address of a rail.
std::string nic_at(const std::vector<RailEnd>& ends, const std::string& backend, const std::string& local);

class Engine : public transport::LinkObserver {
 public:
  explicit Engine(EngineOptions options);
  ~Engine() override;

  // Opens devices and starts the thread. Afterwards rail_ends() says where peers connect to, by NIC.
  Status start();
  void stop();
  // Ends as if the process had been killed: nobody is told, other nodes wait for a successor.
  void abandon();
  const std::vector<RailEnd>& rail_ends() const { return rail_ends_; }
  // From any thread: runs on the engine's thread.
  void post(std::function<void()> work) { mailbox_.post(std::move(work)); }
  // By one thread that is not the engine's: whether the engine has passed its loop since it was asked last;
  // and asks.
  bool is_alive() const { return heartbeat_.has_passed(); }
  void ask_alive();

  // --- on the engine's thread only ---
  void add_session(std::shared_ptr<SessionLink> session);
  void remove_session(uint64_t session);
  // Memory that the process of `session` shares in the group in which it has the seat `handle`.
  void add_memory(uint64_t session, uint64_t number, uint32_t handle, std::shared_ptr<SharedMemory> memory);
  void remove_memory(uint64_t number);
  // Calls spec.on_ready with the reason where it cannot be made.
  void create_group(GroupSpec spec);
  // `handle` of `session` is rank `local` of the group: its attention bits mean this group.
  void attach(uint64_t session, uint32_t handle, uint64_t group, uint32_t local);
  void leave(uint64_t session, uint32_t handle);
  void fail(uint64_t session, uint32_t handle, Code code, int32_t rank, const std::string& text);
  // The process of `session` is gone: every rank of it that has not left is lost.
  void session_lost(uint64_t session, const std::string& how);
  void fail_all(Code code, const std::string& text);
  void fail_group(uint64_t group, Code code, int32_t rank, const std::string& text);
  uint32_t index() const { return options_.index; }
  // A daemon in the place of that one which had node `from` of a group of this engine. `own` and `info`:
  // where this node and that one can be reached as the class is now. Nothing: the engine has no such group.
  // Of the rest `failure` says why the group does not go on.
  struct Met {
    Status failure;
    int32_t rank = -1;
  };
  // `tell_failure`: connects also a group that has failed here, so that the other node hears of it.
  std::optional<Met> meet(uint64_t group, uint32_t me, uint32_t from, const NodeInfo& own,
                          const NodeInfo& info, bool tell_failure = false);
  // Changes of classes (class_change.h). Devices for NICs that were not used before, behind those that are
  // open.
  Status open_more(const std::vector<BackendNic>& nics);
  void set_policies(std::function<transport::SharePolicy(const std::string&)> policy_of);
  // Asks all nodes of all groups that change; on_proposed says when all can, or that one cannot.
  void propose(uint64_t change, const std::string& settings, const EndsOfClass& ends_of);
  // This node's own word for a group, after on_prepare.
  void prepare_move(uint64_t group, uint64_t change, const Result<std::vector<RailEnd>>& ends);
  void finish_change(uint64_t change, bool commit);
  // True if no call is under way.
  bool quiet() const;
  // No group waits for something that only this daemon can still do for its making.
  bool groups_are_made() const;
  // True if nothing waits to be sent.
  bool links_idle() const;
  // True if other nodes have all that was sent by ranks that have left: no successor has that memory.
  bool departed_are_done() const;
  // True if ranks of the host have left a group of several nodes that other ranks of this node are still in.
  bool host_left_before_others() const;
  // Groups that the viewer sees, links that they use, and how many there are of others.
  nlohmann::json status(const Viewer& viewer) const;
  // For diagnosis (facts.h): all groups, and all rails; not complete() yet.
  std::vector<GroupFacts> group_facts() const;
  std::vector<RailFacts> rail_facts() const;
  // What groups that are being made lack, by the group's id.
  std::map<std::string, std::vector<std::string>> lacks() const;
  // Of each group with this id or of this class: the algorithm that the call takes, and why
  // (daemon/group/explanation.h).
  nlohmann::json explain(const std::string& group, const session::Call& call, const Viewer& viewer);
  // Of each class with groups on that node, or that had some: the candidates for the link, and the choice.
  nlohmann::json explain_link(const std::string& node, const Viewer& viewer) const;

 private:
  struct Seat {  // a rank of a session
    EngineGroup* group = nullptr;
    uint32_t local = 0;
  };
  struct Session {
    std::shared_ptr<SessionLink> link;
    std::unordered_map<uint32_t, Seat> seats;  // by handle
  };
  struct Rail {
    enum class Origin : uint8_t { kAccepted, kDialled, kAsking };
    PeerLink* peer = nullptr;
    size_t device = 0;
    std::unique_ptr<Greeting> greeting;  // until it is ready
    Origin origin = Origin::kAccepted;
  };

  // engine.cc
  void run();
  bool work();
  void say_goodbye();
  bool hear_sessions();
  bool progress_touched();
  void set_asleep(bool asleep);
  void run_timers();
  int sleep_ms() const;
  Seat* seat(uint64_t session, uint32_t handle);
  void touch(EngineGroup* group);
  bool reap_groups();
  void watch_device(const transport::Device& device);

  GroupFacts facts_of(const EngineGroup& group) const;
  // Of a local rank's process, as its session's socket says: what the rank itself says counts in its own PID
  // namespace. 0: it has no session (any more), or is in a namespace that is not seen from here.
  uint32_t pid_of(const EngineGroup& group, uint32_t local) const;
  std::shared_ptr<SharedMemory> find_memory(uint64_t group, uint32_t local, uint64_t number);

  // engine_choice.cc
  using GroupNode = std::pair<uint64_t, uint32_t>;  // a group's id, and the number of a node in it
  void connect_group(EngineGroup& group);
  void connect_node(EngineGroup& group, uint32_t node);
  // Dialer: the link over the best candidate that has not failed; the group fails when all have.
  void try_candidates(EngineGroup& group, uint32_t node);
  // The group takes this link.
  void take_link(EngineGroup& group, uint32_t node, PeerLink& peer);
  // The link did not come up: those that wanted it try the next candidate.
  void candidate_failed(const LinkId& link, const Status& why);
  void forget_choices(const EngineGroup& group);
  void give_up_on_dialers();
  Deadline next_dialer_time() const;
  std::vector<LinkCandidate> candidates_between(const NodeInfo& own, const NodeInfo& peer,
                                                bool own_is_first) const;
  // Null: no device could begin; the candidate says why.
  PeerLink* dial_candidate(const NodeInfo& peer, const std::string& group_class, LinkCandidate& candidate,
                           bool last);
  PeerLink* link_over(const NodeId& node, const std::string& group_class, const LinkCandidate& candidate);
  PeerLink& add_peer(const LinkId& id, const std::string& name, uint32_t backend,
                     const std::string& group_class);
  // The key of the group's region for that node, which may write there then.
  Result<transport::RegionKey> group_key(uint64_t group, uint32_t backend, const NodeId& node);
  // The node may write to nothing of the group any more.
  void withdraw(EngineGroup& group, const NodeId& node);
  transport::Device& device_of(uint32_t backend);

  // engine_links.cc
  void tell_link_up(EngineGroup& group, uint32_t node, PeerLink& peer);
  void on_completion(size_t device, const transport::Completion& completion);
  void on_greeting(Rail& rail, transport::Connection& connection, std::span<const std::byte> message);
  void adopt(Rail& rail, transport::Connection& connection);
  // The link that an accepted connection belongs to, made if there is none; null: it was refused.
  PeerLink* link_of(Rail& rail, transport::Connection& connection);
  void refuse(Rail& rail, transport::Connection& connection, const std::string& why);
  // The node has no rail of this link of ours.
  void redial(const NodeId& node, uint32_t link);
  std::unique_ptr<transport::NicShare::Lane> lane_on(size_t device, const std::string& group_class);
  // Who wants to send on a NIC that others use as well does so in turn.
  void share_nics();
  bool is_used(const PeerLink& peer) const;  // by a group that still needs the node
  void forget_peer(PeerLink& peer, const Status& why);
  // Work for one group: what throws ends that one (base/contained.h).
  template <typename Work>
  void contain(EngineGroup& group, Work&& work) {
    (void)contained("a group", work, [&group](const std::string& why) { group.give_up(why); });
  }
  void make_group(GroupSpec spec);
  // engine_contained.cc
  void contain_completion(size_t device, const transport::Completion& completion);
  // For a link whose own books may be half written: it is not asked for anything any more.
  void break_link(PeerLink& peer, const std::string& why);
  void break_torn_links();
  void say_broken(const LinkId& id, const std::string& name, uint32_t backend, const std::string& group_class,
                  std::vector<RailPath> paths);
  void drop_stray(PeerLink& peer, uint64_t group);
  void answer_stray(PeerLink& peer, uint64_t group);
  void answer_failed(EngineGroup& group, uint32_t node, PeerLink& peer);
  void remember_ended(uint64_t group) { ended_[next_ended_++ % ended_.size()] = group; }
  bool has_ended(uint64_t group) const {
    return std::find(ended_.begin(), ended_.end(), group) != ended_.end();
  }
  void keep_early(const PeerLink& peer, const Note& note);

  // engine_changes.cc
  Status open_nic(const BackendNic& nic);
  void check_proposed();
  void find_ways(EngineGroup& group, uint32_t node);
  void try_way(EngineGroup& group, uint32_t node);
  void move_link_made(const PeerLink& peer);
  void move_link_failed(const LinkId& link, const Status& why);
  void check_move(EngineGroup& group);
  void answer_move(EngineGroup& group, const Status& answer);
  void on_move_answer(EngineGroup& group, uint32_t node, uint64_t change, const Status& answer);
  bool is_over(uint64_t change) const;
  void remember_over(uint64_t change);
  void forget_orphan(uint64_t group, uint64_t change);
  void forget_move(uint64_t group);
  void move_group(EngineGroup& group);
  // The choice takes this link; the one before ends when nobody uses it.
  void set_ends(LinkChoice& choice, const std::vector<RailEnd>& ends) const;
  void supersede(LinkChoice& choice, const PeerLink& by);
  void follow(EngineGroup& group, uint32_t node, PeerLink& peer, const transport::RegionKey& their_region);
  void on_change_note(EngineGroup& group, uint32_t node, const Note& note);
  void retire_links();

  // engine_restart.cc
  // The successor of a daemon takes its place in the group, when no link to that is left.
  void welcome(EngineGroup& group, uint32_t node);
  void stop_moving(EngineGroup& group, uint32_t node);

  // engine_probes.cc
  Result<transport::RegionKey> probe_landing(uint32_t backend, const NodeId& node);
  std::string measured_as(const PeerLink& peer) const;
  const session::MemoryRates& memory_rates();
  void make_probe(PeerLink& peer);
  void measure_next(EngineGroup& group);
  void on_probe_note(PeerLink& peer, const ProbeNote& note);
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
  void dial_spares(PeerLink& peer);
  void dial_path(PeerLink& peer, RailPath& path);  // does not throw: a path that cannot be dialled has failed
  void begin_path(PeerLink& peer, RailPath& path);
  // Asks whether the peer's daemon still listens, without making a rail.
  void ask(PeerLink& peer);
  // `elsewhere`: somebody else answered.
  void on_connection_lost(PeerLink& peer, const transport::Connection& connection, Rail::Origin origin,
                          const Status& why, bool elsewhere);
  void hear_nics();
  void run_link_timers();
  PeerLink& peer_of(const transport::Link& link);
  void on_rail_up(transport::Link& link, const transport::Connection& connection,
                  const transport::RailStatus& status) override;
  void on_rail_down(transport::Link& link, const transport::Connection& connection,
                    const transport::RailStatus& status, const std::string& lost) override;
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
    std::optional<transport::RegionKey> probe_landing;
  };
  std::vector<OpenBackend> backends_;
  std::vector<std::unique_ptr<transport::Device>> devices_;  // as options_.nics
  std::vector<uint32_t> backend_of_;                         // by device
  std::vector<RailEnd> rail_ends_;                           // by device
  std::map<std::string, transport::NicShare> nic_shares_;    // by address: several backends may use one NIC
  size_t first_turn_ = 0;                                    // of the links, in share_nics()
  std::vector<transport::Completion> completions_;
  std::unordered_map<transport::Connection*, Rail> rails_;
  std::map<LinkId, std::unique_ptr<PeerLink>> peers_;
  uint32_t next_link_ = 1;
  std::map<GroupNode, LinkChoice> choices_;
  std::map<uint64_t, GroupMove> moves_;  // by group
  std::deque<uint64_t> over_;            // the last changes that have ended
  std::optional<uint64_t> proposing_;    // the change that this node asks the others for
  std::map<std::pair<std::string, std::string>, LinkChoice>
      past_choices_;                          // by node and class, of groups that ended
  std::map<GroupNode, NodeInfo> successors_;  // that have come while links to their predecessors were open
  StrangerLog stranger_log_;
  std::vector<std::unique_ptr<PeerLink>> retired_;
  ProbeMemory probe_memory_;
  std::map<uint64_t, Session> sessions_;
  struct Memory {
    uint64_t session;
    uint32_t handle;
    std::shared_ptr<SharedMemory> memory;
  };
  std::unordered_map<uint64_t, Memory> memories_;
  std::vector<std::unique_ptr<EngineGroup>> groups_;  // by group slot; empty slots are reused
  std::unordered_map<uint64_t, EngineGroup*> group_by_id_;
  struct GroupMemory {
    std::shared_ptr<SharedMemory> memory;
    std::map<uint32_t, transport::RegionKey> keys;  // by backend
  };
  std::unordered_map<uint64_t, GroupMemory> group_memory_;
  struct EarlyNote {
    LinkId from;
    Note note;
    Deadline until;
  };
  std::vector<EarlyNote> early_;              // hellos and failures of groups that are not made here yet
  uint64_t stray_frames_ = 0;                 // for groups that their sender is not in
  Deadline stray_again_ = Deadline::never();  // when to say so again
  std::array<uint64_t, 256> ended_{};         // ids of the last groups that ended
  size_t next_ended_ = 0;
  std::vector<EngineGroup*> touched_;
  std::vector<EngineGroup*> progressing_;  // by progress_touched()
  bool look_at_all_ = false;
  std::atomic<bool> stop_{false};
  std::atomic<bool> silent_{false};  // it ends without a goodbye
  std::thread thread_;
};

}  // namespace hdt::daemon
