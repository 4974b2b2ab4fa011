// succession.cc: see succession.h.
#include "daemon/control/succession.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <thread>

#include "base/contained.h"
#include "base/saturate.h"
#include "daemon/control/class_changes.h"
#include "daemon/control/joins.h"

namespace hdt::daemon {

namespace {

// How often a handover, and a process that ends, looks whether it may go on.
constexpr int64_t kLookEveryNs = 5 * kNsPerMs;
constexpr int64_t kLookUs = 2'000;
// A thread that has not answered so long after the end of the drain is not waited for, in ms.
constexpr int64_t kAnswerMs = 1'000;

}  // namespace

// False also if the thread has not answered in time, which a caller must be able to take for a no. Called
// by the thread that ends the daemon, never by the control thread itself.
template <typename Question>
bool Succession::ask(Question question, Deadline until) {
  // Shared, since the work may run after this function has given up.
  const auto answer = std::make_shared<std::promise<bool>>();
  auto future = answer->get_future();
  daemon_.mailbox.post([answer, question = std::move(question)] {
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

// A group is being made from the first of its joins until each of its ranks has been answered, here and
// on the other nodes. It is handed on from part to part:
// 1. the sessions' sockets, while a process's request is unread: they are read here first;
// 2. the maker, and on the coordinator's node the rendezvous, until all nodes have reported success;
// 3. a control connection, while a failure is on its way to other nodes;
// 4. the engine, until every rank everywhere has its seat and the other nodes know of the seats
//    here (EngineGroup::is_made()).
//
// All parts are asked in one turn of the thread that hands the group on, so no group is between two of
// them. When the answer is yes, the same turn stops accepting joins.
bool Succession::may_hand_over() {
  daemon_.sessions->read_all();
  const bool under_way = daemon_.maker->open_groups() != 0 || daemon_.rendezvous.open_groups() != 0 ||
                         daemon_.changes->under_way() || !daemon_.network->all_sent();
  if (under_way || !daemon_.groups_are_made()) return false;
  daemon_.leaving = true;
  return true;
}

// Polls, as stop() does: it happens once in a daemon's life. Asks the control thread again and again.
// Ranks may join in between: each answer holds for its turn only, except the one that is yes.
bool Succession::prepare_handover(int64_t drain_ms) {
  const Deadline drain = Deadline::after_ms(drain_ms);
  const Deadline answer = Deadline::after_ms(saturating_add(drain_ms, kAnswerMs));
  while (true) {
    if (ask([this] { return may_hand_over(); }, answer)) return true;
    if (drain.expired()) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLookEveryNs));
  }
}

// A process without a rank here finds another daemon when it needs one.
bool Succession::needed_by_others() const {
  const auto& all = daemon_.sessions->all();
  return daemon_.joins->others_join() || std::any_of(all.begin(), all.end(), [this](const auto& entry) {
           return !entry.second.seats.empty() && !daemon_.joins->is_host(entry.first);
         });
}

// A successor could not go on with these: a rank of another process that waits for a coordinator elsewhere,
// which would give the group up when this daemon goes; groups between their Membership and their last seat;
// a change of classes.
bool Succession::can_leave() const {
  return !daemon_.joins->others_join_elsewhere() && daemon_.maker->being_connected() == 0 &&
         daemon_.rendezvous.being_connected() == 0 && !daemon_.changes->under_way() &&
         daemon_.groups_are_made();
}

// The decision and what follows from it are one turn of the control thread, so that no message of a process
// comes in between.
bool Succession::try_to_leave(const Deadline& drain, bool& others) {
  daemon_.sessions->read_all();
  others = needed_by_others();
  if (!others) return true;
  if (!can_leave() && !drain.expired()) return false;
  // From here on a process that joins is referred to the successor. A process that ends closes its session
  // before it looks whether anybody listens here. So either this process sees that the other one has ended,
  // or the other one sees that nobody listens.
  daemon_.leaving = true;
  daemon_.sessions->stop_listening();
  daemon_.sessions->read_all();
  others = needed_by_others();
  if (!others) return true;
  daemon_.joins->refer_to_successor();
  daemon_.sessions->abandon();
  // Set in this turn: the control thread must not read the end of the sessions, which it would take for the
  // end of their processes.
  daemon_.stop.store(true, std::memory_order_release);
  return true;
}

// Returns whether others still needed the daemon, that is whether a successor is expected.
bool Succession::leave(int64_t quiet_ms, int64_t drain_ms) {
  const auto needed = [this] {
    return ask([this] {
      // a last hdtCommDestroy may not have been read
      daemon_.sessions->read_all();
      return needed_by_others();
    });
  };
  // 1. The host's ranks have departed from a group of several nodes, and other ranks of this node are still
  //    in it. Ranks of one job depart at about the same time; if they do, nobody has to take anything over.
  //    So they get `quiet_ms` for that.
  const Deadline quiet = Deadline::after_ms(quiet_ms);
  while (needed() && !daemon_.engines.ask([](Engine& engine) {
    return !engine.host_departed_before_others();
  }) && !quiet.expired()) {
    ::usleep(kLookUs);
  }
  // 2. Data that the host's ranks have sent must arrive: nobody sends it again after them.
  const Deadline drain = Deadline::after_ms(drain_ms);
  while (!daemon_.engines.ask([](Engine& engine) { return engine.departed_are_done(); }) &&
         !drain.expired()) {
    ::usleep(kLookUs);
  }
  // 3. Leave: at once if nobody else needs the daemon, else when nothing is in the way of a successor, or at
  //    the deadline.
  bool others = true;
  while (!ask([&] { return try_to_leave(drain, others); })) ::usleep(kLookUs);
  return others;
}

}  // namespace hdt::daemon
