// The control thread's loop, and what it asks engines. What is done for one session, channel or group ends
// with that one where it throws (base/contained.h).
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
    heartbeat_.pass();
    const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), sleep_ms());
    for (int i = 0; i < ready; ++i) hear(events[static_cast<size_t>(i)].data.fd);
    work();
  }
}

void Control::hear(int fd) {
  if (fd == sessions_->listener()) {
    (void)contained(
        "a new session", [this] { sessions_->accept_some(); },
        [](const std::string&) { ::usleep(kAfterFailureUs); });
  } else {
    (void)contained(
        "a session", [this, fd] { sessions_->on_readable(fd); },
        [this, fd](const std::string& why) { sessions_->end_of(fd, why); });
  }
}

// Each timer is come back to, as what has not been done is still due.
void Control::work() {
  bool failed = false;
  const auto part = [&failed](const char* what, const auto& work) { failed |= !contained(what, work); };
  part("messages of daemons", [this] {
    while (mailbox_.run() || network_->poll()) {
    }
  });
  part("the time of sessions", [this] { sessions_->on_time(); });
  while (!late_places_.empty() && late_places_.front().first.expired()) late_places_.pop_front();
  part("the time of control connections", [this] { network_->on_time(); });
  part("the time of joins", [this] { maker_->on_time(); });
  part("the time of a change", [this] { on_change_time(); });
  part("the time of questions", [this] { inquiries_->on_time(); });
  part("the time of reunions", [this] { reunion_->on_time(); });
  part("the time of meetings", [this] { reply(rendezvous_.on_time()); });
  watch_network();
  if (failed) ::usleep(kAfterFailureUs);
}

// `then` waits for all engines, also for one that could not do its part.
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
