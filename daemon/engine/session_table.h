// session_table.h: the processes that use an engine: their wake pages, their seats in groups, and the memory
// that they share.
//
// A process names a seat by its handle: it sets the handle's attention bit in the wake page
// (ipc/wake_page.h), and rings the engine's eventfd if the engine sleeps. hear() reads the bits and touches
// the groups.
//
// Owner: Engine; the engine's thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/shared_memory.h"
#include "base/status.h"
#include "daemon/group/group_table.h"
#include "daemon/sessions/session_link.h"

namespace hdt::daemon {

class SessionTable {
 public:
  struct Options {
    uint32_t engine = 0;    // the engine's number
    uint32_t host_pid = 0;  // the process that hosts the daemon; 0: none
    std::string node_name;
  };
  // `epoll`, the engine's, gets the eventfd of each session. Both must outlive this object.
  SessionTable(Options options, int epoll, GroupTable& groups)
      : options_(std::move(options)), epoll_(epoll), groups_(groups) {}

  // A process has connected, or its session has ended and it had no ranks.
  void add(std::shared_ptr<SessionLink> session);
  void remove(uint64_t session);
  // The process of `session` has ended, as `how` says: each of its ranks that has not departed has failed,
  // and what it shared is forgotten.
  void process_ended(uint64_t session, const std::string& how);

  // `handle` of `session` has the seat of local rank `local` in the group: its attention bits mean this
  // group. A session that has ended means that the rank has failed.
  void attach(uint64_t session, uint32_t handle, uint64_t group, uint32_t local);
  // The rank has departed, or reports a failure of its group.
  void leave(uint64_t session, uint32_t handle);
  void fail(uint64_t session, uint32_t handle, Code code, int32_t rank, const std::string& text);
  // The group ends: ranks whose departure was read off their states still have seats; their message comes
  // later, or never.
  void drop_seats(const EngineGroup& group);

  // Memory that the process of `session` shares in the group in which it has the seat `handle`.
  void add_memory(uint64_t session, uint64_t number, uint32_t handle, std::shared_ptr<SharedMemory> memory);
  // The memory is not shared any more; groups unregister it when no call uses it.
  void remove_memory(uint64_t number);
  // The memory, if the process of that rank shares it in that group; otherwise null.
  std::shared_ptr<SharedMemory> find_memory(uint64_t group, uint32_t local, uint64_t number);

  // Reads the attention bits of all wake pages, and touches the groups that they mean; true if there were
  // any.
  bool hear();
  void set_asleep(bool asleep);
  // Empties the eventfd if `fd` is one of a session.
  void on_readable(int fd) const;
  // The process of a local rank, as its session's socket says; a rank's own statement counts in its PID
  // namespace only. 0: it has no session any more, or no number here. Searches all seats.
  uint32_t pid_of(const EngineGroup& group, uint32_t local) const;

 private:
  // A rank of a session.
  struct Seat {
    EngineGroup* group = nullptr;
    uint32_t local = 0;
  };
  // A process as this engine knows it. Its entry goes with the process.
  struct Session {
    std::shared_ptr<SessionLink> link;
    std::unordered_map<uint32_t, Seat> seats;  // by handle
    // The highest handle so far. The process's handles are spread over all engines, so the number of seats
    // here says nothing about it.
    uint32_t highest = 0;
  };
  struct Memory {
    uint64_t session;
    uint32_t handle;
    std::shared_ptr<SharedMemory> memory;
  };
  int eventfd_of(const Session& session) const { return session.link->eventfds[options_.engine].get(); }
  ipc::EngineBell& bell_of(const Session& session) const {
    return session.link->page().engines[options_.engine];
  }
  // null: there is no such seat.
  Seat* seat(uint64_t session, uint32_t handle);

  const Options options_;
  const int epoll_;
  GroupTable& groups_;
  std::map<uint64_t, Session> sessions_;           // by number
  std::unordered_map<uint64_t, Memory> memories_;  // by number
};

}  // namespace hdt::daemon
