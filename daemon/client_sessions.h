// client_sessions.h: the daemon's side of sessions: who is connected, what they ask. A session that breaks a rule is closed
// with a reason; nothing else notices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/seqpacket.h"
#include "base/spare_descriptor.h"
#include "daemon/session_link.h"
#include "session/messages.h"

namespace hdt::daemon {

struct Seat {  // a rank of a process
  uint32_t engine = 0;
  uint64_t group = 0;
};

struct ClientSession {
  UniqueFd socket;
  // A pidfd of the peer (base/process_watch.h); not valid where the system has none, or before the hello.
  UniqueFd process;
  PeerCredentials credentials{};
  bool greeted = false;
  std::shared_ptr<SessionLink> link;
  std::map<uint32_t, Seat> seats;  // by handle
  std::map<uint32_t, std::shared_ptr<SharedMemory>>
      memories;  // what it shares with the other ranks of its groups

  // The smallest handle that is not in use.
  uint32_t free_handle() const {
    uint32_t handle = 0;
    for (const auto& [used, seat] : seats) {
      if (used != handle) break;
      ++handle;
    }
    return handle;
  }
};

// "pid 12", or that it has none here: the process is in a PID namespace that is not seen from this one.
std::string pid_text(const PeerCredentials& credentials);

// What the control thread does with well-formed requests.
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  virtual void on_opened(uint64_t session) = 0;
  virtual void on_rendezvous(uint64_t session) = 0;
  virtual void on_join(uint64_t session, const session::JoinRequest& request) = 0;
  virtual void on_notice(uint64_t session, session::Kind kind, const session::GroupNotice& notice) = 0;
  virtual void on_status(uint64_t session) = 0;
  virtual void on_explain(uint64_t session, const session::ExplainRequest& request) = 0;
  virtual void on_ask(uint64_t session, const session::Question& question) = 0;
  virtual void on_shared(uint64_t session, uint32_t number, std::shared_ptr<SharedMemory> memory) = 0;
  virtual void on_unshared(uint32_t number) = 0;
  virtual Status on_adopt(uint64_t session, const session::AdoptRequest& request, UniqueFd segment) = 0;
  virtual void on_open(uint64_t session, const session::MemoryRequest& request) = 0;
  // The session is gone; `how` completes "rank 3 ...". Its entry is erased afterwards.
  virtual void on_gone(uint64_t session, const std::string& how) = 0;
};

class ClientSessions {
 public:
  struct Options {
    std::string software;
    std::string node_name;
    uint32_t host_pid = 0;
    uint32_t engines = 1;
    int64_t restart_ms = 0;
    std::vector<std::string> allow_groups;  // unix groups; empty: everyone
  };
  ClientSessions(Options options, SessionHandler& handler);

  // `epoll` gets every socket, and a pidfd for each session; events carry the descriptor.
  Status listen(const std::string& path, int epoll);
  void stop_listening();
  int listener() const { return listener_.get(); }
  // At a limit of the daemon's, connections are refused by name, or, where not even that can be done, left
  // for a while.
  void accept_all();
  void on_time();
  Deadline next_time() const { return go_on_at_; }
  // A session's socket is readable, or its process has ended: what it said before is heard in either case.
  void on_readable(int fd);
  // Hears all that processes said before now, whatever the last wait saw.
  void read_all();
  ClientSession* find(uint64_t number);
  const std::map<uint64_t, ClientSession>& all() const { return sessions_; }
  bool send(uint64_t session, std::span<const std::byte> bytes, std::span<const int> fds = {});
  // Tells the process why and ends the session.
  void refuse(uint64_t session, Code code, const std::string& why);
  void refuse_all(Code code, const std::string& why);
  // Ends all without a word, as a kill would, also for processes that hold copies of the sockets.
  void abandon();

 private:
  void turn_away(UniqueFd socket, const Status& why);
  void say_limit(const Status& why);
  void pause(const Status& why);
  void watch_listener(uint32_t events);
  // For work in which sessions end.
  std::vector<uint64_t> numbers() const;
  void receive(uint64_t number);
  Status handle(uint64_t number, Packet& packet);
  Status greet(uint64_t number, const Packet& packet);
  // A process's end ends its session, whoever holds copies of its socket.
  Status watch_process(uint64_t number, ClientSession& client);
  void process_ended(uint64_t number);
  Status share(uint64_t number, Packet& packet);
  Status adopt(uint64_t number, Packet& packet);
  uint32_t free_memory_number();
  bool allowed(const PeerCredentials& credentials) const;
  void end(uint64_t number, const std::string& how);

  Options options_;
  SessionHandler& handler_;
  int epoll_ = -1;
  std::string path_;
  UniqueFd listener_;
  SpareDescriptor spare_;
  bool at_limit_ = false;
  Deadline say_again_ = Deadline::never();
  Deadline go_on_at_ = Deadline::never();  // the listener is left alone until then
  uint64_t next_number_ = 1;
  uint32_t next_memory_;
  std::map<uint64_t, ClientSession> sessions_;
  std::map<int, uint64_t> by_fd_;  // sessions by their sockets, and by the pidfds of their processes
};

}  // namespace hdt::daemon
