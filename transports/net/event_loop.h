// event_loop.h: one epoll instance: sockets, deadlines and a wake-up, all behind the one descriptor that a
// device's owner sleeps on. It starts no thread and never blocks.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "base/status.h"
#include "transports/net/socket.h"

namespace hdt::transport::tcp {

class EventSource {
 public:
  virtual ~EventSource() = default;
  virtual void on_event(uint32_t epoll_events) = 0;
  virtual void on_deadline() = 0;
  // One of the two threw. Who waits for something that does not come then must hear of it; takes no memory.
  // By itself nothing is lost but the call: a socket that has events still tells so again.
  virtual void on_failure() {}
};

class EventLoop {
 public:
  Status open();
  int fd() const { return epoll_.get(); }

  Status add(int fd, EventSource* source, uint32_t epoll_events);
  void modify(int fd, EventSource* source, uint32_t epoll_events);
  // Also forgets the source's deadline.
  void remove(int fd, EventSource* source);
  // Where it throws, the deadline before this one holds.
  void set_deadline(EventSource* source, int64_t milliseconds_from_now);
  void clear_deadline(EventSource* source);
  // Makes fd() readable until the next dispatch(). Nothing to do while one polls, or will: it looks again by
  // itself.
  void wake();
  void set_attended(bool attended) { attended_ = attended; }
  void set_polling(bool polling) { polling_ = polling; }
  // Calls what has events or is due. A source may remove itself, and no other, from inside its call. True if
  // any was called.
  bool dispatch();

 private:
  void arm_timer();
  bool run_due();

  Fd epoll_;
  Fd wake_;
  Fd timer_;
  bool woken_ = false;
  bool polling_ = false;
  bool attended_ = false;
  int64_t armed_ns_ = 0;
  std::set<std::pair<int64_t, EventSource*>> deadlines_;
};

}  // namespace hdt::transport::tcp
