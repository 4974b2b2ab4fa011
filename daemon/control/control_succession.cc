// control_succession.cc: the end of a process that hosts an embedded daemon. Other processes of the node
// go on with a daemon of their own, which adopts their groups as after a kill (docs/design/restart.md).
// Work that a successor could not go on with is finished before.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "base/contained.h"
#include "base/log.h"
#include "daemon/control/control.h"

namespace hdt::daemon {

namespace {

// How often the ending process looks whether it may go, in us.
constexpr int64_t kLookUs = 2'000;

// The port of the first of these addresses.
std::string first_port(const std::string& addresses) {
  const std::string first = addresses.substr(0, addresses.find(','));
  return first.substr(first.rfind(':') + 1);
}

}  // namespace

bool Control::ask_control(std::function<bool()> question, Deadline until) {
  // Shared, since the work may run after this function has given up.
  const auto answer = std::make_shared<std::promise<bool>>();
  auto future = answer->get_future();
  mailbox_.post([answer, question = std::move(question)] {
    bool said = false;
    (void)contained("a question to the control thread", [&] { said = question(); });
    answer->set_value(said);
  });
  if (!until.is_never() && future.wait_for(std::chrono::nanoseconds(
                               std::max<int64_t>(until.remaining_ns(), 0))) != std::future_status::ready) {
    return false;
  }
  return future.get();
}

// By the pid of the socket's peer, as the kernel reports it. A process of another PID namespace has no
// pid here, and is not the host.
bool Control::is_host(uint64_t session) const {
  const ClientSession* client = sessions_->find(session);
  return client != nullptr && host_pid_ != 0 && static_cast<uint32_t>(client->credentials.pid) == host_pid_;
}

bool Control::others_join() const {
  return std::any_of(joining_.begin(), joining_.end(),
                     [this](const auto& entry) { return !is_host(entry.first.first); });
}

// A process without a rank here finds another daemon when it needs one.
bool Control::needed_by_others() const {
  const auto& all = sessions_->all();
  return others_join() || std::any_of(all.begin(), all.end(), [this](const auto& entry) {
           return !entry.second.seats.empty() && !is_host(entry.first);
         });
}

// A rank that waits for such a group can as well ask the successor: that one has this daemon's address,
// and the daemons of other nodes dial it again.
bool Control::coordinates(const std::string& rendezvous) const { return network_->listens_at(rendezvous); }

// A successor could not go on with these: a rank of another process that waits for a coordinator
// elsewhere, which would give the group up when this daemon goes; groups between their Membership and
// their last seat; a change of classes.
bool Control::can_leave() {
  const bool elsewhere = std::any_of(joining_.begin(), joining_.end(), [this](const auto& entry) {
    return !is_host(entry.first.first) && entry.second.request.host == ipc::Hosting::kNone &&
           !coordinates(entry.second.request.rendezvous);
  });
  return !elsewhere && maker_->being_connected() == 0 && rendezvous_.being_connected() == 0 && !change_ &&
         !reload_ && groups_are_made();
}

void Control::ask_successor(uint64_t session, uint32_t request) {
  ipc::Joined answer;
  answer.request = request;
  answer.code = Code::kInProgress;
  answer.text = "the daemon ends; its successor is to be asked";
  sessions_->send(session, ipc::encode(answer));
}

// Blocks and polls, as it happens once in a daemon's life.
bool Control::leave_to_others(int64_t quiet_ms, int64_t drain_ms) {
  if (!thread_.joinable()) return false;
  const auto needed = [this] {
    return ask_control([this] {
      // a last hdtCommDestroy may not have been read
      sessions_->read_all();
      return needed_by_others();
    });
  };
  // 1. The host's ranks have left a group of several nodes, and other ranks of this node are still in it.
  //    Ranks of one job leave at about the same time; if they do, nobody has to take anything over. So
  //    they get `quiet_ms` for that.
  const Deadline quiet = Deadline::after_ms(quiet_ms);
  while (needed() && !ask_engines([](Engine& engine) { return !engine.host_left_before_others(); }) &&
         !quiet.expired()) {
    ::usleep(kLookUs);
  }
  // 2. Data that the host's ranks have sent must arrive: nobody sends it again after them.
  const Deadline drain = Deadline::after_ms(drain_ms);
  while (!ask_engines([](Engine& engine) { return engine.departed_are_done(); }) && !drain.expired()) {
    ::usleep(kLookUs);
  }
  // 3. Leave: at once if nobody else needs the daemon, else when nothing is in the way of a successor, or
  //    at the deadline. The decision and what follows from it are one turn of the control thread, so that
  //    no message of a process comes in between.
  bool left = false;
  bool others = true;
  const auto try_to_leave = [&] {
    sessions_->read_all();
    others = needed_by_others();
    left = !others || can_leave() || drain.expired();
    if (!others || !left) return left;
    // From here on a process that joins is referred to the successor. A process that ends closes its
    // session before it looks whether anybody listens here. So either this process sees that the other
    // one has gone, or the other one sees that nobody listens.
    leaving_ = true;
    sessions_->stop_listening();
    sessions_->read_all();
    others = needed_by_others();
    if (!others) return true;
    for (const auto& [who, joining] : joining_) {
      if (joining.request.host != ipc::Hosting::kNone || coordinates(joining.request.rendezvous))
        ask_successor(who.first, who.second);
    }
    sessions_->abandon();
    // Set in this turn: the control thread must not read the end of the sessions, which it would take for
    // the end of their processes.
    stop_.store(true, std::memory_order_release);
    return true;
  };
  while (!ask_control(try_to_leave)) ::usleep(kLookUs);
  // 4. Nobody needs it: the caller stops it in order. Otherwise it ends as if it had been killed: engines
  //    close their connections without a message, and groups go on with the successor.
  if (!others) return false;
  thread_.join();
  for (auto& engine : engines_) engine->abandon();
  mailbox_.close();
  HDT_LOG_INFO("this process ends: another one of the node goes on with its daemon {}",
               LogTag{.node = node_.name});
  return true;
}

std::string Control::settings() const {
  Config config = config_;
  // The successor listens where the others look for this daemon, and has as many engines as its groups
  // rely on.
  (void)override_config(
      config,
      {{"nics.port", first_port(network_->address())}, {"node.threads", std::to_string(engines_.size())}},
      "the predecessor's");
  return print_config(config);
}

}  // namespace hdt::daemon
