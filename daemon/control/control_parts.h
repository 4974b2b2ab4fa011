// control_parts.h: what the parts of the control thread share: how the daemon is configured now, the way to
// engines, sessions and other daemons, and the parts themselves.
//
// Owner: Control. Thread: the control thread, unless a member says otherwise; Control::start() fills it in
// before that thread starts, in the order of the members.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/config.h"
#include "base/mailbox.h"
#include "daemon/control/control_network.h"
#include "daemon/control/engine_set.h"
#include "daemon/diagnosis/inquiries.h"
#include "daemon/links/backend_plan.h"
#include "daemon/membership/group_maker.h"
#include "daemon/membership/peer_rediscovery.h"
#include "daemon/membership/rendezvous.h"
#include "daemon/protocol/live_classes.h"
#include "daemon/protocol/node.h"
#include "daemon/protocol/trust.h"
#include "daemon/protocol/viewer.h"
#include "daemon/sessions/client_sessions.h"
#include "daemon/sessions/user_limits.h"
#include "transports/secure/secure.h"

namespace hdt::daemon {

class Answers;
class ClassChanges;
class Diagnosis;
class Doctor;
class Joins;
class Restarts;

struct ControlParts {
  // In control.cc, where all parts are known.
  ControlParts(Config with, uint32_t host);
  ~ControlParts();

  // The configuration in force. Only ClassChanges changes these three, and the ends in node.rails.
  Config config;
  // the difference between `config` and the file, for other nodes
  LiveClasses live;
  // which backends and NICs this node uses, for each class
  BackendPlan plan;
  // this node
  NodeInfo node;
  // the process that this daemon is embedded in; 0: hdtcommd
  const uint32_t host_pid;
  std::shared_ptr<Trust> trust;
  // protects data connections over tcp; null: nothing does
  std::shared_ptr<const transport::secure::Security> security;
  // this daemon has peers on its own host only (own_host.h)
  bool own_host_only = false;
  int64_t started_ns = 0;
  // a successor takes over: joins are refused
  bool leaving = false;
  // ends the control thread's loop; any thread
  std::atomic<bool> stop{false};

  Mailbox mailbox;  // posted to by any thread
  EngineSet engines{mailbox};
  // before everything that holds claims, so that it ends after all of them
  std::unique_ptr<UserLimits> limits;
  std::unique_ptr<ControlNetwork> network;
  Rendezvous rendezvous;
  std::unique_ptr<Joins> joins;
  std::unique_ptr<GroupMaker> maker;
  std::unique_ptr<Restarts> restarts;
  std::unique_ptr<PeerRediscovery> rediscovery;
  std::unique_ptr<Inquiries> inquiries;
  std::unique_ptr<ClassChanges> changes;
  std::unique_ptr<Diagnosis> diagnosis;
  std::unique_ptr<Doctor> doctor;
  std::unique_ptr<Answers> answers;
  std::unique_ptr<ClientSessions> sessions;

  // This node with its ends for a class as the class is now.
  NodeInfo self_for(const std::string& group_class) const {
    return {node.id, node.name, node.address, plan.ends_for(group_class, node.rails)};
  }
  // How long, in ms, processes and other nodes are to wait for a successor of this daemon. Another process
  // that uses an embedded daemon takes its place at once; if there is none, nobody should wait long for it.
  int64_t restart_ms() const {
    const int64_t configured = config.timeouts.restart_ms;
    return host_pid != 0 ? std::min(configured, kSuccessionMs) : configured;
  }
  // True if no group of the engines needs this daemon any more to be made (EngineGroup::is_made()). The
  // control thread waits for the engines, so none of them is given another group meanwhile.
  bool groups_are_made() const {
    return engines.ask([](Engine& engine) { return engine.groups_are_made(); });
  }
  // Sends what Rendezvous has returned.
  void reply(const std::vector<Rendezvous::Reply>& replies) const {
    for (const auto& [to, message] : replies) network->send(to, message);
  }

 private:
  // How long other nodes wait for the successor of an embedded daemon at most, in ms: all ranks are to learn
  // of a loss within 5 s.
  static constexpr int64_t kSuccessionMs = 3'000;
};

// The viewer who asks in a session. If the session has ended, one that sees nothing.
Viewer viewer_in(const ControlParts& daemon, uint64_t session);

// Answers a question of a session with JSON, behind the message `answer`. An answer may be longer than a
// message, so it goes through a memfd. If there is no memory for it, the session ends with that as the
// reason, as a question that is never answered would keep it from being read.
void send_json(ClientSessions& sessions, uint64_t session, std::span<const std::byte> answer,
               const nlohmann::json& json);
// The same, as the successful answer to an ipc::Question.
void send_answer(const ControlParts& daemon, uint64_t session, const nlohmann::json& json);

}  // namespace hdt::daemon
