// client_sessions.h: the daemon's side of sessions: who is connected, what they ask. A session that breaks a
// rule is closed with a reason; nothing else notices.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/seqpacket.h"
#include "base/spare_descriptor.h"
#include "daemon/sessions/session_link.h"
#include "daemon/sessions/user_limits.h"
#include "ipc/messages.h"

namespace hdt::daemon {

struct Seat {  // a rank of a process
  uint32_t engine = 0;
  uint64_t group = 0;
  // The group's memory on this node: it alone says which group it is, as ids are drawn elsewhere.
  std::weak_ptr<const SharedMemory> memory;
  std::shared_ptr<UserLimits::Claim> claim;
  bool told_failure = false;  // a group fails once; what else is said of it is not heard
  bool told_deadline = false;

  bool same_group(const Seat& other) const {
    return !memory.owner_before(other.memory) && !other.memory.owner_before(memory);
  }
};

// Memory that a process shares with the other ranks of one of its groups.
struct SharedBlock {
  uint32_t handle = 0;  // of its seat in the group
  std::shared_ptr<SharedMemory> memory;
  dev_t device = 0;  // the file: shared in several groups it is mapped once
  ino_t inode = 0;
  UserLimits::Claim claim;
  std::shared_ptr<UserLimits::Claim> size_claim;  // of all blocks of the file
};

// What a process has asked as hdtctl does: until it has read the answer nothing else of it is heard.
struct OpenQuestion {
  UserLimits::Claim claim;
  bool answered = false;
  Deadline read_until = Deadline::never();  // answered
};

struct ClientSession {
  UniqueFd socket;
  // A pidfd of the peer (base/process_watch.h); not valid where the system has none, or before the hello.
  UniqueFd process;
  PeerCredentials credentials{};
  bool greeted = false;
  UserLimits::Claim claim;
  std::shared_ptr<SessionLink> link;
  std::map<uint32_t, Seat> seats;            // by handle
  std::map<uint64_t, SharedBlock> memories;  // by number
  std::optional<OpenQuestion> question;
  std::vector<UserLimits::Claim>
      unread;  // for answers with descriptors that came while another one was unread

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
  virtual void on_shared(uint64_t session, uint64_t number, const SharedBlock& block) = 0;
  virtual void on_unshared(uint64_t number) = 0;
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
    int64_t hello_ms = 5'000;               // to the first word
  };
  // Looks up the groups' names, which may take long: not for the control thread.
  ClientSessions(Options options, UserLimits& limits, SessionHandler& handler);

  // `epoll` gets every socket, and a pidfd for each session; events carry the descriptor.
  Status listen(const std::string& path, int epoll);
  void stop_listening();
  int listener() const { return listener_.get(); }
  // At a limit of the daemon's or of the user's, connections are refused by name. After some of those, or
  // where not even that can be done, who else comes waits for a while, so that the daemon sleeps.
  void accept_some();
  void on_time();
  Deadline next_time() const;
  // A session's socket is readable, or its process has ended: what it said before is heard in either case.
  void on_readable(int fd);
  // What was to be done for the session of this descriptor threw: the session ends.
  void end_of(int fd, const std::string& why);
  // Hears all that processes said before now, whatever the last wait saw.
  void read_all();
  ClientSession* find(uint64_t number);
  // The session that shares that memory, or null.
  const ClientSession* owner_of(uint64_t memory) const;
  // A process has left a group: what it shared there is shared no more.
  void end_seat(ClientSession& client, uint32_t handle);
  const std::map<uint64_t, ClientSession>& all() const { return sessions_; }
  bool send(uint64_t session, std::span<const std::byte> bytes, std::span<const int> fds = {});
  // Tells the process why and ends the session.
  void refuse(uint64_t session, Code code, const std::string& why);
  void refuse_all(Code code, const std::string& why);
  // Ends all without a word, as a kill would, also for processes that hold copies of the sockets.
  void abandon();
  // Without a word: the process hears that the session has ended, and so does the daemon. Takes no memory.
  void hang_up(uint64_t number);

 private:
  void turn_away(UniqueFd socket, const Status& why);
  void say_limit(const Status& why);
  void pause(int64_t ms);
  void watch_listener(uint32_t events);
  // For work in which sessions end.
  std::vector<uint64_t> numbers() const;
  // At most so many messages; what is left comes in the next turn.
  void receive(uint64_t number, size_t messages);
  Status handle(uint64_t number, Packet& packet);
  Status greet(uint64_t number, const Packet& packet);
  // A process's end ends its session, whoever holds copies of its socket.
  Status watch_process(uint64_t number, ClientSession& client);
  void process_ended(uint64_t number);
  Status share(uint64_t number, Packet& packet);
  Status adopt(uint64_t number, Packet& packet);
  // False: the user asks too much at a time, and has been told so.
  Result<bool> begin_question(uint64_t number, session::Kind answer);
  void look_at_questions();
  Status claim_unread(ClientSession& client);
  void hear(const ClientSession& client, bool heard);
  Result<uint64_t> free_memory_number() const;
  void forget_memory(ClientSession& client, uint64_t memory);
  bool allowed(const ClientSession& client) const;
  // A line in the log that the session's user has caused, if it may have one more.
  void warn_for(const ClientSession& client, const std::string& line);
  void end(uint64_t number, const std::string& how);

  Options options_;
  std::vector<gid_t> allowed_;  // of options_.allow_groups
  UserLimits& limits_;
  SessionHandler& handler_;
  int epoll_ = -1;
  std::string path_;
  UniqueFd listener_;
  SpareDescriptor spare_;
  bool at_limit_ = false;
  Deadline say_again_ = Deadline::never();
  Deadline go_on_at_ = Deadline::never();  // the listener is left alone until then
  uint64_t next_number_ = 1;
  std::map<uint64_t, ClientSession> sessions_;
  std::unordered_map<uint64_t, uint64_t> memory_owners_;  // sessions by the numbers of what they share
  std::deque<std::pair<Deadline, uint64_t>>
      silent_;                            // sessions that may not have said hello, the oldest first
  std::set<uint64_t> asking_;             // sessions with a question
  Deadline look_at_ = Deadline::never();  // at those that may have read their answer
  std::map<int, uint64_t> by_fd_;         // sessions by their sockets, and by the pidfds of their processes
};

}  // namespace hdt::daemon
