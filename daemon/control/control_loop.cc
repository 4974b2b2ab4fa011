// control_loop.cc: the loop of the control thread, and what comes to it from engines and other daemons. Work
// for one session, channel or group that throws ends that one only (base/contained.h).
#include <sys/epoll.h>
#include <unistd.h>

#include <array>

#include "base/contained.h"
#include "base/log.h"
#include "daemon/control/class_changes.h"
#include "daemon/control/control.h"
#include "daemon/control/diagnosis.h"
#include "daemon/control/joins.h"
#include "daemon/control/restarts.h"

namespace hdt::daemon {

// The loop never ends by an exception: hear() and work() contain them. Work that one of them has not
// done is still due, so it is tried again in the next round.
void Control::run() {
  std::array<epoll_event, 64> events{};
  while (!daemon_.stop.load(std::memory_order_acquire)) {
    // Passed once per round, before the sleep: a watchdog wakes the thread by its mailbox and looks
    // whether it came by here (hung_threads()).
    heartbeat_.pass();
    // The set is level-triggered: what is not handled in this round wakes the next one.
    const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), sleep_ms());
    for (int i = 0; i < ready; ++i) hear(events[static_cast<size_t>(i)].data.fd);
    work();
  }
}

// A descriptor that epoll has reported. It may have been closed since, and its number given again, by what
// was handled before it in the same round: whoever gets it finds nothing to read then.
void Control::hear(int fd) {
  // An exception while accepting ends no session, so it would repeat at once; hence the pause.
  if (fd == daemon_.sessions->listener()) {
    (void)contained(
        "a new session", [this] { daemon_.sessions->accept_some(); },
        [](const std::string&) { ::usleep(kAfterFailureUs); });
  } else {
    // The session of this descriptor ends if its work throws. A descriptor of the mailbox or the network
    // belongs to no session and is ignored here; work() looks at those.
    (void)contained(
        "a session", [this, fd] { daemon_.sessions->on_readable(fd); },
        [this, fd](const std::string& why) { daemon_.sessions->end_of(fd, why); });
  }
}

// One round of everything that no descriptor reports. Each part is contained by itself: what it has not
// done is still due and is tried in the next round. After a failure the thread pauses, so that a part
// that always throws does not keep it busy.
void Control::work() {
  bool failed = false;
  const auto part = [&failed](const char* what, const auto& work) { failed |= !contained(what, work); };
  part("messages of daemons", [this] {
    // Until both have nothing more: work that is handled here posts and sends further work.
    while (daemon_.mailbox.run() || daemon_.network->poll()) {
    }
  });
  part("the time of sessions", [this] { daemon_.sessions->on_time(); });
  daemon_.joins->on_time();
  part("the time of control connections", [this] { daemon_.network->on_time(); });
  part("the time of joins", [this] { daemon_.maker->on_time(); });
  part("the time of a change", [this] { daemon_.changes->on_time(); });
  part("the time of questions", [this] { daemon_.inquiries->on_time(); });
  part("the time of rediscoveries", [this] { daemon_.rediscovery->on_time(); });
  part("the time of meetings", [this] { daemon_.reply(daemon_.rendezvous.on_time()); });
  watch_network();
  if (failed) ::usleep(kAfterFailureUs);
}

// The earliest of all timers whose work work() does.
int Control::sleep_ms() const {
  Deadline next = Deadline::earlier(daemon_.changes->next_time(), daemon_.sessions->next_time());
  for (const auto& time :
       {daemon_.network->next_time(), daemon_.maker->next_time(), daemon_.inquiries->next_time(),
        daemon_.rediscovery->next_time(), daemon_.rendezvous.next_time()}) {
    if (time) next = Deadline::earlier(next, *time);
  }
  return next.poll_timeout_ms();
}

// A descriptor that was closed has left the epoll set by itself, and its number may have been given again
// since. So all are added whenever any has changed; those that are in the set already answer EEXIST.
void Control::watch_network() {
  if (watched_ == daemon_.network->device_changes()) return;
  watched_ = daemon_.network->device_changes();
  for (int fd : daemon_.network->fds()) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

// Everything from another daemon comes here, after its handshake. Without a cluster key nothing has proved
// that it is one, so each handler checks what it gets.
void Control::on_control(ChannelId channel, std::span<const std::byte> bytes) {
  const ControlMessage message = decode_control(bytes);
  if (const auto* join = std::get_if<Join>(&message)) {
    daemon_.joins->on_join_message(channel, *join);
  } else if (const auto* cancel = std::get_if<Cancel>(&message)) {
    daemon_.reply(daemon_.rendezvous.on_cancel(channel, *cancel));
  } else if (const auto* membership = std::get_if<Membership>(&message)) {
    daemon_.maker->on_membership(channel, *membership);
  } else if (const auto* outcome = std::get_if<Outcome>(&message)) {
    // The coordinator's own node is connected to itself like any other, so both may be meant: an Outcome
    // for the coordinator, or one from it. Each ignores what is not for it.
    daemon_.reply(daemon_.rendezvous.on_outcome(channel, *outcome));
    daemon_.maker->on_outcome(channel, *outcome);
  } else if (const auto* inquiry = std::get_if<Inquiry>(&message)) {
    daemon_.diagnosis->on_inquiry(channel, *inquiry);
  } else if (const auto* told = std::get_if<Reply>(&message)) {
    daemon_.inquiries->on_reply(channel, *told);
  } else if (const auto* word = std::get_if<Successor>(&message)) {
    daemon_.restarts->on_successor(channel, *word);
  } else if (const auto* known = std::get_if<SuccessorReply>(&message)) {
    // A daemon answers for its own node only.
    if (daemon_.network->is_from(channel, known->node))
      daemon_.rediscovery->on_successor_reply(channel, *known);
  } else {
    HDT_LOG_WARN("a malformed control message was ignored {}", LogTag{.node = daemon_.node.name});
  }
}

// Called again if one of the four throws, so each of them may get the same end twice.
void Control::on_closed(ChannelId channel, const Status& why) {
  daemon_.reply(daemon_.rendezvous.on_closed(channel));
  daemon_.maker->on_closed(channel, why);
  daemon_.rediscovery->on_closed(channel);
  daemon_.inquiries->on_closed(channel, why);
}

// Called on an engine's thread, as all of these: they only post, so an engine never waits for the control
// thread. The copies are what crosses the threads.
void Control::FromEngines::on_prepare(const NodeChange::Asker& asker, const ClassPrepare& question) {
  control_.daemon_.mailbox.post(
      [&daemon = control_.daemon_, asker, question] { daemon.changes->on_prepare(asker, question); });
}

void Control::FromEngines::on_commit(uint64_t change, bool commit) {
  control_.daemon_.mailbox.post(
      [&daemon = control_.daemon_, change, commit] { daemon.changes->on_commit(change, commit); });
}

// The number tells a change that is over from the one under way.
void Control::FromEngines::on_proposed(uint64_t change, const Status& answer) {
  control_.daemon_.mailbox.post(
      [&daemon = control_.daemon_, change, answer] { daemon.changes->on_proposed(change, answer); });
}

// The daemon's own record; each engine keeps its copy of what it knows.
void Control::FromEngines::on_measured(const KnownMeasurements& news) {
  control_.daemon_.mailbox.post([&control = control_, news] { control.keep(news); });
}

// The search for the node's successor is over.
void Control::FromEngines::on_back(uint64_t group, uint32_t node) {
  control_.daemon_.mailbox.post(
      [&daemon = control_.daemon_, group, node] { daemon.rediscovery->end(group, node); });
}

// Shared, as std::function needs a copyable callable and facts may be large.
void Control::FromEngines::on_ended(GroupFacts facts) {
  control_.daemon_.mailbox.post(
      [&daemon = control_.daemon_, shared = std::make_shared<GroupFacts>(std::move(facts))] {
        daemon.maker->on_group_ended(shared->id);
        daemon.rediscovery->end_group(shared->id);
        daemon.diagnosis->remember(std::move(*shared));
      });
}

// Written at once: there are only a few measurements in the life of a daemon. A failure costs no more than
// another measurement after the next start.
void Control::keep(const KnownMeasurements& news) {
  if (news.memory.measured()) measurements_.memory = news.memory;
  for (const auto& [link, rates] : news.links) measurements_.links[link] = rates;
  if (measurements_path_.empty()) return;
  const Status saved = save_measurements(measurements_path_, measurements_);
  if (!saved.is_ok()) HDT_LOG_WARN("the measurements of links are not kept: {}", saved.message());
}

// A thread that sleeps is healthy, so it is asked and woken first (heartbeat.h), and judged at the next
// call: if it has not passed its loop since then, it hangs. As long as one hangs, no thread is asked anew.
// The caller decides how long a thread has to answer, by the time between its calls.
std::vector<std::string> Control::hung_threads() {
  // The names are those of the threads, by which an administrator finds them in a debugger.
  std::vector<std::string> hung;
  if (!heartbeat_.has_passed()) hung.emplace_back("hdt-control");
  for (const auto& engine : daemon_.engines) {
    if (!engine->is_alive()) hung.push_back("hdt-engine-" + std::to_string(engine->index()));
  }
  if (!hung.empty()) return hung;
  heartbeat_.ask();
  daemon_.mailbox.post([] {});
  for (const auto& engine : daemon_.engines) engine->ask_alive();
  return hung;
}

}  // namespace hdt::daemon
