// control_loop.cc: the loop of the control thread, and how engines are asked. Work for one session,
// channel or group that throws ends that one only (base/contained.h).
#include <sys/epoll.h>
#include <unistd.h>

#include <array>
#include <future>

#include "base/contained.h"
#include "daemon/control/control.h"

namespace hdt::daemon {

void Control::run() {
  std::array<epoll_event, 64> events{};
  while (!stop_.load(std::memory_order_acquire)) {
    // Passed once per round, before the sleep: a watchdog wakes the thread by its mailbox and looks
    // whether it came by here (hung_threads()).
    heartbeat_.pass();
    // The set is level-triggered: what is not handled in this round wakes the next one.
    const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), sleep_ms());
    for (int i = 0; i < ready; ++i) hear(events[static_cast<size_t>(i)].data.fd);
    work();
  }
}

void Control::hear(int fd) {
  // An exception while accepting ends no session, so it would repeat at once; hence the pause.
  if (fd == sessions_->listener()) {
    (void)contained(
        "a new session", [this] { sessions_->accept_some(); },
        [](const std::string&) { ::usleep(kAfterFailureUs); });
  } else {
    // The session of this descriptor ends if its work throws. A descriptor of the mailbox or the network
    // belongs to no session and is ignored here; work() looks at those.
    (void)contained(
        "a session", [this, fd] { sessions_->on_readable(fd); },
        [this, fd](const std::string& why) { sessions_->end_of(fd, why); });
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
    while (mailbox_.run() || network_->poll()) {
    }
  });
  part("the time of sessions", [this] { sessions_->on_time(); });
  while (!late_places_.empty() && late_places_.front().first.expired()) late_places_.pop_front();
  part("the time of control connections", [this] { network_->on_time(); });
  part("the time of joins", [this] { maker_->on_time(); });
  part("the time of a change", [this] { on_change_time(); });
  part("the time of questions", [this] { inquiries_->on_time(); });
  part("the time of rediscoveries", [this] { rediscovery_->on_time(); });
  part("the time of meetings", [this] { reply(rendezvous_.on_time()); });
  watch_network();
  if (failed) ::usleep(kAfterFailureUs);
}

void Control::FromEngines::on_prepare(const NodeChange::Asker& asker, const ClassPrepare& question) {
  control_.mailbox_.post([&c = control_, asker, question] { c.on_prepare(asker, question); });
}

void Control::FromEngines::on_commit(uint64_t change, bool commit) {
  control_.mailbox_.post([&c = control_, change, commit] { c.on_commit(change, commit); });
}

void Control::FromEngines::on_proposed(uint64_t change, const Status& answer) {
  control_.mailbox_.post([&c = control_, change, answer] { c.on_proposed(change, answer); });
}

void Control::FromEngines::on_measured(const KnownMeasurements& news) {
  control_.mailbox_.post([&c = control_, news] { c.keep(news); });
}

void Control::FromEngines::on_back(uint64_t group, uint32_t node) {
  control_.mailbox_.post([&c = control_, group, node] { c.rediscovery_->end(group, node); });
}

// Shared, as std::function needs a copyable callable and facts may be large.
void Control::FromEngines::on_ended(GroupFacts facts) {
  control_.mailbox_.post([&c = control_, shared = std::make_shared<GroupFacts>(std::move(facts))] {
    c.maker_->on_group_ended(shared->id);
    c.rediscovery_->end_group(shared->id);
    c.remember(std::move(*shared));
  });
}

void Control::keep(const KnownMeasurements& news) {
  if (news.memory.measured()) measurements_.memory = news.memory;
  for (const auto& [link, rates] : news.links) measurements_.links[link] = rates;
  if (config_.node.state_folder.empty()) return;
  const Status saved = save_measurements(measurements_path(), measurements_);
  if (!saved.is_ok()) HDT_LOG_WARN("the measurements of links are not kept: {}", saved.message());
}

// `then` runs when all engines have answered, also if one threw. `left` is touched on the control thread
// only; the mailboxes order everything that `work` wrote before `then`.
void Control::on_every_engine(const std::function<void(Engine&)>& work, std::function<void()> then) {
  auto left = std::make_shared<size_t>(engines_.size());
  for (auto& engine : engines_) {
    engine->post([this, e = engine.get(), work, then, left] {
      (void)contained("a question to an engine", [&] { work(*e); });
      mailbox_.post([then, left] {
        if (--*left == 0) then();
      });
    });
  }
}

// Blocks. An engine that has stopped would never answer: this must run before Engine::stop(). The
// references in the posted work are valid because this waits for the answer.
bool Control::ask_engines(const std::function<bool(Engine&)>& question) {
  bool all = true;
  for (auto& engine : engines_) {
    std::promise<bool> answer;
    auto future = answer.get_future();
    engine->post([&answer, &question, e = engine.get()] {
      bool said = false;
      (void)contained("a question to an engine", [&] { said = question(*e); });
      answer.set_value(said);
    });
    all &= future.get();
  }
  return all;
}

}  // namespace hdt::daemon
