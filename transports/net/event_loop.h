// event_loop.h: the event loop of a device: one epoll instance that holds sockets, a timer for deadlines and
// a wake-up. All of them are behind one descriptor, on which the device's owner sleeps. It starts no thread
// and never blocks.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "base/status.h"
#include "transports/net/socket.h"

namespace hdt::transport::tcp {

// An object that the loop calls: a connection, a listener, a socket that lingers. The loop does not own it;
// it must be removed from the loop before it is destroyed.
class EventSource {
 public:
  virtual ~EventSource() = default;
  virtual void on_event(uint32_t epoll_events) = 0;
  virtual void on_deadline() = 0;
  // One of the two calls above threw. Must not throw or allocate. The default does nothing, which is right if
  // only the call is lost: the loop is level-triggered, so a socket that still has events is reported again.
  // A source that something waits for must end itself here.
  virtual void on_failure() {}
};

// One per device, used on the device's thread.
class EventLoop {
 public:
  // To be called once, before anything else. kSystem if the kernel refuses a descriptor.
  Status open();
  // Readable when dispatch() has something to do.
  int fd() const { return epoll_.get(); }

  // Watches `fd` for `epoll_events` (EPOLLIN, EPOLLOUT; 0: errors only). `fd` must be non-blocking. kSystem
  // on failure.
  Status add(int fd, EventSource* source, uint32_t epoll_events);
  void modify(int fd, EventSource* source, uint32_t epoll_events);
  // Stops watching, and drops the source's deadline.
  void remove(int fd, EventSource* source);
  // Calls the source's on_deadline() once at that time. A source has one deadline; a new one replaces it. If
  // this throws, the earlier deadline holds.
  void set_deadline(EventSource* source, int64_t milliseconds_from_now);
  void clear_deadline(EventSource* source);
  // Makes fd() readable until the next dispatch(). No effect while the device polls or is attended: its owner
  // looks at everything again then, and a system call is spared.
  void wake();
  // See Device::set_attended().
  void set_attended(bool attended) { attended_ = attended; }
  // True from the begin to the end of the device's poll().
  void set_polling(bool polling) { polling_ = polling; }
  // Calls every source that has events or whose deadline is due. From inside its call a source may remove
  // itself, and no other: the events of others are collected already. Returns true if any was called.
  bool dispatch();

 private:
  // Sets the timer to the earliest deadline.
  void arm_timer();
  bool run_due();

  Fd epoll_;
  Fd wake_;             // an eventfd
  Fd timer_;            // a timerfd
  bool woken_ = false;  // wake() has written since the last dispatch()
  bool polling_ = false;
  bool attended_ = false;
  int64_t armed_ns_ = 0;  // what the timer is set to (CLOCK_MONOTONIC); 0: not set
  std::set<std::pair<int64_t, EventSource*>> deadlines_;  // by time in ns; at most one per source
};

}  // namespace hdt::transport::tcp
