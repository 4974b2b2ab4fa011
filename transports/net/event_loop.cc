// event_loop.cc: see event_loop.h. In the epoll instance a source's pointer stands for its socket; the
// addresses of wake_ and timer_ stand for these two.
#include "transports/net/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>

#include "transports/net/attempt.h"

namespace hdt::transport::tcp {

namespace {

constexpr int kMaxEvents = 64;  // of one dispatch(); the rest is reported by the next one
constexpr int64_t kNsPerMs = 1'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;

int64_t now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNsPerSecond + now.tv_nsec;
}

}  // namespace

Status EventLoop::open() {
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  wake_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  timer_ = Fd(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!epoll_.valid() || !wake_.valid() || !timer_.valid()) {
    return Status::from_errno("cannot make an epoll instance", errno);
  }
  // The timer is level-triggered: it reports until it is read or set anew.
  // The eventfd is edge-triggered: every write to it is one event, and it need never be read.
  epoll_event wake{};
  wake.events = EPOLLIN | EPOLLET;
  wake.data.ptr = &wake_;
  epoll_event timer{};
  timer.events = EPOLLIN;
  timer.data.ptr = &timer_;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &wake) != 0 ||
      ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, timer_.get(), &timer) != 0) {
    return Status::from_errno("cannot fill an epoll instance", errno);
  }
  return Status::ok();
}

// Sockets are level-triggered: one that is not read to its end is reported again by the next dispatch().
Status EventLoop::add(int fd, EventSource* source, uint32_t epoll_events) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.ptr = source;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0) return Status::ok();
  return Status::from_errno("cannot watch a socket", errno);
}

void EventLoop::modify(int fd, EventSource* source, uint32_t epoll_events) {
  epoll_event event{};
  event.events = epoll_events;
  event.data.ptr = source;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void EventLoop::remove(int fd, EventSource* source) {
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  clear_deadline(source);
}

void EventLoop::set_deadline(EventSource* source, int64_t milliseconds_from_now) {
  constexpr int64_t kLongestMs = int64_t{1} << 40;  // keeps the sum far from overflow
  // The new deadline is inserted before the old one is erased: inserting may throw, erasing may not.
  const auto kept = deadlines_.emplace(
      now_ns() + std::clamp<int64_t>(milliseconds_from_now, 0, kLongestMs) * kNsPerMs, source);
  std::erase_if(deadlines_,
                [&](const auto& entry) { return entry.second == source && entry != *kept.first; });
  arm_timer();
}

void EventLoop::clear_deadline(EventSource* source) {
  std::erase_if(deadlines_, [source](const auto& entry) { return entry.second == source; });
  arm_timer();
}

// One write is enough until the next dispatch().
void EventLoop::wake() {
  if (woken_ || polling_ || attended_) return;
  woken_ = true;
  ::eventfd_write(wake_.get(), 1);
}

// The kernel is called only if the earliest deadline has changed.
void EventLoop::arm_timer() {
  const int64_t earliest = deadlines_.empty() ? 0 : deadlines_.begin()->first;
  if (earliest == armed_ns_) return;
  armed_ns_ = earliest;
  itimerspec when{};  // zero disarms it
  when.it_value.tv_sec = earliest / kNsPerSecond;
  when.it_value.tv_nsec = earliest % kNsPerSecond;
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

bool EventLoop::dispatch() {
  // A wake() from here on must write again.
  woken_ = false;
  std::array<epoll_event, kMaxEvents> events;
  const int count = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents, 0);
  bool any = false;
  bool timer = false;
  for (int i = 0; i < count; ++i) {
    void* target = events[i].data.ptr;
    if (target == &wake_) continue;
    // The timer is handled below, after the sockets.
    if (target == &timer_) {
      timer = true;
      continue;
    }
    // A source that throws hears of it by on_failure(), and the others are called all the same.
    auto* const source = static_cast<EventSource*>(target);
    (void)attempt_for(*source, [&] { source->on_event(events[i].events); });
    any = true;
  }
  // Deadlines come last, so that a source whose event has come in time clears its deadline first.
  return timer && run_due() ? true : any;
}

// Each deadline is taken out before its source is called, as the source may set the next one. `now` is read
// once, so a source that sets a deadline of 0 ms is not called for ever.
bool EventLoop::run_due() {
  // Reading clears the timer's event. It fails if the timer was set anew since epoll_wait(): then nothing is
  // due, and the timer reports again.
  uint64_t expirations = 0;
  if (::read(timer_.get(), &expirations, sizeof expirations) < 0) return false;
  armed_ns_ = 0;
  bool any = false;
  const int64_t now = now_ns();
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    EventSource* source = deadlines_.begin()->second;
    deadlines_.erase(deadlines_.begin());
    (void)attempt_for(*source, [source] { source->on_deadline(); });
    any = true;
  }
  arm_timer();
  return any;
}

}  // namespace hdt::transport::tcp
