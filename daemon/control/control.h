// control.h: a daemon: its control thread, and the parts that work on it. Everything rare happens here:
// sessions of processes, groups that are being made, connections to other daemons, class changes, diagnosis.
// Engines do the rest.
//
// Threads. One thread, "hdt-control", runs run(); all parts are its own, unless a comment says otherwise.
// Other threads reach it through the mailbox: engines post what they report, and the caller's threads post
// what they ask. Work for an engine is posted to that engine's mailbox (engine_set.h). The control thread
// never blocks on an engine, except in ControlParts::groups_are_made(); no engine ever blocks on the control
// thread, so this cannot deadlock.
//
// Errors. Whatever throws while the control thread works for one session, connection or group ends that one
// only (base/contained.h). So work for one of them is always run inside contained(), and a timer's work that
// threw is still due.
//
// The parts (ControlParts), each a class with its own state:
//
//   ClientSessions   processes: their sockets and messages; Requests hands those on
//   Joins            joins of processes, from a request to a seat
//   GroupMaker       groups of this node that are being made; Rendezvous: those made here for all nodes
//   Restarts         groups over restarts of daemons, with PeerRediscovery
//   ClassChanges     class changes
//   Diagnosis        hdtctl why and trace, deadlines; Doctor: hdtctl doctor; Answers: the rest of hdtctl
//   Succession       the end of a daemon whose groups go on
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/config.h"
#include "daemon/control/control_parts.h"
#include "daemon/control/requests.h"
#include "daemon/control/succession.h"
#include "daemon/engine/heartbeat.h"
#include "daemon/links/measurements_file.h"

namespace hdt::daemon {

class Control {
 public:
  // `host_pid`: the process that this daemon is embedded in; 0: hdtcommd. `job_secret`: what embedded.h says
  // of it. Opens nothing.
  Control(Config config, uint32_t host_pid, std::string job_secret);
  // Stops it, without a drain.
  ~Control();

  // Opens devices and sockets, starts the engines and the control thread. On failure nothing listens any
  // more; the destructor ends the rest.
  Status start();
  // Ends in order (Daemon::stop()). By another thread than the control thread; blocks. A second call does
  // nothing.
  void stop(int64_t drain_ms, const std::string& why);
  // Daemon::prepare_handover(), by another thread: true as soon as nothing is under way that a successor
  // could not go on with; false at the deadline. After true no joins are accepted any more.
  bool prepare_handover(int64_t drain_ms) { return succession_.prepare_handover(drain_ms); }
  // From any thread: running groups follow the classes of this configuration. The rest of it takes effect at
  // the next start only.
  void reconfigure(Config config);
  // Daemon::leave_to_others(), by another thread, when the host process of an embedded daemon ends.
  bool leave_to_others(int64_t quiet_ms, int64_t drain_ms);
  // Daemon::settings(). To be called while no class change can be under way: it reads the configuration on
  // the caller's thread.
  std::string settings() const;
  // Daemon::hung_threads(), by one thread that is none of the daemon's.
  std::vector<std::string> hung_threads();

 private:
  // Receives the reports of the engines, on their threads, so each function only posts. control_loop.cc
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

  // The steps of start(), in order of dependence: identity and keys; the protection of payload; devices,
  // engines and the control network; the parts. open_devices() calls the first, which calls the second.
  Status open_trust();
  Status open_security();
  Status open_devices();
  void make_parts();
  // The engine with this number, and the options of the control network.
  std::unique_ptr<Engine> make_engine(uint32_t index);
  ControlNetworkOptions network_options();
  // Logs at start who can be a peer of this daemon, if that may surprise.
  void say_who_can_be_a_peer() const;
  // The loop of the control thread: sleep in epoll, handle the sockets that woke it, do the rest of the work.
  // control_loop.cc, as the next six.
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
  // A message of another daemon: decodes it and hands it to its owner. A malformed one is logged and ignored.
  void on_control(ChannelId channel, std::span<const std::byte> message);
  // A control connection has ended.
  void on_closed(ChannelId channel, const Status& why);
  // Keeps what an engine has measured, also in the state folder.
  void keep(const KnownMeasurements& news);
  // Writes the keys of nodes that were seen for the first time (Trust::keep()).
  void keep_nodes();

  const std::string job_secret_;
  Heartbeat heartbeat_;
  // the listener, sessions, pidfds, the mailbox, and the network's descriptors
  UniqueFd epoll_;
  // measured rates, and the file in the state folder that has them; "": there is no such folder
  KnownMeasurements measurements_;
  std::string measurements_path_;
  // ControlNetwork::device_changes() when its descriptors were added to epoll_
  uint64_t watched_ = 0;
  FromEngines from_engines_{*this};
  ControlParts daemon_;
  Requests requests_{daemon_};
  Succession succession_{daemon_};
  std::thread thread_;
};

}  // namespace hdt::daemon
