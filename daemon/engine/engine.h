// engine.h: an engine thread, on which everything frequent of the daemon happens. An engine owns backends
// and their devices, the links to the engines of the same index on other nodes, and the groups that were
// given to it. No other thread touches any of that, so the data path has no locks. The control thread talks
// to an engine by post(); an engine answers through EngineEvents.
//
// A round (work()): posted work, wake pages of sessions, groups that were touched, devices, touched groups
// again, NICs that are shared, acknowledgements, timers, and at the end whatever died in this round.
//
// Sleeping: before it sleeps in epoll the engine sets `asleep` in the wake page (`WakePage`) of every
// session, and looks once more. A process sets its attention bit first, and then looks at `asleep`. So one
// of the two sees the other. An engine with nothing to do sleeps without a timeout.
//
// Exceptions: work for one group, link or connection runs in GroupTable::contain() or contained() and ends
// only that one when it throws (base/contained.h).
//
// The parts of an engine, each with its own state; they know those before them:
//
//   Devices         the NICs that are open
//   LinkTable       links, and the connections that are their rails; its Dialer makes them
//   LinkMeasuring   how fast links and memory are
//   GroupTable      groups, and which have something to do
//   SegmentKeys     who may write to groups' segments
//   EarlyMessages   what came for groups that are not made here yet
//   LinkChooser     which link a group takes to a node
//   GroupMover      class changes
//   Successors      daemons that were started again
//   SessionTable    processes, their seats and the memory that they share
//   EngineReports   what status, explain and diagnosis ask
//
// Files: engine.cc (thread and rounds, the making and end of groups), engine_messages.cc (what links report,
// handed to the groups and parts that it concerns).
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/mailbox.h"
#include "daemon/classes/group_mover.h"
#include "daemon/engine/engine_reports.h"
#include "daemon/engine/heartbeat.h"
#include "daemon/engine/session_table.h"
#include "daemon/engine/successors.h"
#include "daemon/group/early_messages.h"
#include "daemon/group/group_table.h"
#include "daemon/group/link_chooser.h"
#include "daemon/group/segment_keys.h"
#include "daemon/links/devices.h"
#include "daemon/links/link_measuring.h"
#include "daemon/links/link_settings.h"
#include "daemon/links/link_table.h"
#include "daemon/links/link_user.h"
#include "daemon/links/measurements_file.h"

namespace hdt::daemon {

// The settings that Control gives an engine.
struct EngineOptions : LinkSettings {
  // the NICs to open at the start
  std::vector<BackendNic> nics;
  PolicyOfClass policy_of;
  // how long it looks for work before it sleeps
  int64_t spin_ns = 0;
  // how long other nodes are to wait for a successor of this daemon, in ms; 0: not at all
  int64_t restart_ms = 0;
  // the process that hosts the daemon; 0: none
  uint32_t host_pid = 0;
  // measured before, by this daemon or an earlier one
  KnownMeasurements known;
};

// An engine's reports, which Control hears. Called on the engine's thread.
class EngineEvents : public ChangeEvents {
 public:
  // Something was measured that the daemon did not know; `news` has nothing else in it.
  virtual void on_measured(const KnownMeasurements& news) = 0;
  // A group works again with a node that was suspended.
  virtual void on_back(uint64_t group, uint32_t node) = 0;
  // A group has ended and is about to be destroyed; `facts` is all that is known of it.
  virtual void on_ended(GroupFacts facts) = 0;
};

// See the head of this file. Owner: Control. As LinkUser it hears from its links.
class Engine : public LinkUser {
 public:
  // `events` must outlive the engine.
  Engine(EngineOptions options, EngineEvents& events);
  ~Engine() override;  // as stop()

  // Opens the devices and starts the thread; kSystem or the backend's errors. Afterwards rail_ends() says
  // where peers connect to: one end for each NIC.
  Status start();
  // Ends the thread after a goodbye to all peers, within 200 ms, and waits for it.
  void stop();
  // Ends as if the process had been killed: nothing is sent to anyone, and other nodes wait for a successor.
  void abandon();
  const std::vector<RailEnd>& rail_ends() const { return devices_.ends(); }
  uint32_t index() const { return options_.index; }
  // Runs `work` on the engine's thread. Any thread.
  void post(std::function<void()> work) { mailbox_.post(std::move(work)); }
  // Whether the engine has passed its loop since ask_alive() was called last. Both for one thread that is not
  // the engine's.
  bool is_alive() const { return heartbeat_.has_passed(); }
  void ask_alive();

  // --- the rest on the engine's thread only, which the parts assert ---
  SessionTable& sessions() { return on_thread(), sessions_; }
  GroupMover& mover() { return on_thread(), mover_; }
  Successors& successors() { return on_thread(), successors_; }
  const EngineReports& reports() const { return on_thread(), reports_; }

  // Makes the group and connects it. Calls spec.on_ready with the reason if that fails.
  void create_group(GroupSpec spec);
  // Fails all groups with ranks here, or one group, here and on all nodes.
  void fail_all(Code code, const std::string& text);
  void fail_group(uint64_t group, Code code, int32_t rank, const std::string& text);
  // Class changes: opens NICs that were not used before, behind those that are open; if one cannot be opened,
  // those before it stay.
  Status open_more(const std::vector<BackendNic>& nics) { return on_thread(), devices_.open(nics); }
  // Changes how classes share NICs, at once.
  void set_policies(PolicyOfClass policy_of) { on_thread(), links_.set_policies(std::move(policy_of)); }
  // No call is under way.
  bool quiet() const;
  // No group's making needs anything of this daemon (EngineGroup::is_made()).
  bool groups_are_made() const;
  // No write is pending on any link (Link::pending_writes()).
  bool links_idle() const { return on_thread(), links_.idle(); }
  // Other nodes have all that departed ranks have sent; no successor has the memory of these ranks.
  bool departed_are_done() const;
  // Ranks of the host's process have departed from a group of several nodes in which other ranks of this node
  // still are.
  bool host_departed_before_others() const;

 private:
  // A group's way to this engine.
  class ServicesOfGroup;

  // Ends the program if another thread than the engine's calls, once that runs.
  void on_thread() const;
  // The thread's loop: rounds, looks for `spin_ns`, sleeps.
  void run();
  // One round; true if anything was done.
  bool work();
  // Closes all links in order.
  void say_goodbye();
  // Does what is due now; and how long nothing is due (ms for epoll_wait; -1: for ever).
  void run_timers();
  int sleep_ms() const;
  // create_group() without its care for exceptions.
  void make_group(GroupSpec spec);
  // Destroys groups that are finished.
  bool reap_groups();

  // LinkUser (engine_messages.cc)
  void on_up(PeerLink& peer) override;
  void on_down(PeerLink& peer, const Status& why, bool daemon_ended, bool last) override;
  void on_rails(PeerLink& peer) override;
  void on_link_rates(PeerLink& peer, const ipc::LinkRates& rates) override;
  void on_news(const KnownMeasurements& news) override { events_.on_measured(news); }
  bool is_used(const PeerLink& peer) const override;
  void on_sent(PeerLink& peer, uint64_t token) override;
  void on_arrived(PeerLink& peer, const transport::LinkHeader& header, uint64_t bytes) override;
  void on_message(PeerLink& peer, std::span<const std::byte> message) override;
  // A message of the peer's measurement.
  void on_probe_message(PeerLink& peer, const ProbeMessage& message);
  // A frame for a group that is not here (any more), or that the peer is not in.
  void drop_stray(PeerLink& peer, uint64_t group);
  // Answers GroupUnknown.
  void answer_stray(PeerLink& peer, uint64_t group);
  // Answers with the failure of a group that the peer does not know of.
  void answer_failed(EngineGroup& group, uint32_t node, PeerLink& peer);

  const EngineOptions options_;
  EngineEvents& events_;
  Mailbox mailbox_;
  Heartbeat heartbeat_;
  UniqueFd epoll_;
  // the parts, in the order in which they know each other
  Devices devices_;
  LinkTable links_;
  LinkMeasuring measuring_;
  SegmentKeys keys_;
  GroupTable groups_;
  EarlyMessages early_;
  LinkChooser chooser_;
  GroupMover mover_;
  Successors successors_;
  SessionTable sessions_;
  EngineReports reports_;
  uint64_t stray_frames_ = 0;                 // for groups that their sender is not in
  Deadline stray_again_ = Deadline::never();  // when to say so again
  bool look_at_all_ = false;                  // after a round that threw
  std::atomic<bool> stop_{false};
  std::atomic<bool> silent_{false};  // it ends without a goodbye
  std::thread thread_;
};

}  // namespace hdt::daemon
