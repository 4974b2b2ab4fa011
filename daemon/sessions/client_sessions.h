// client_sessions.h: the daemon's side of sessions. It accepts processes at the daemon's socket, reads
// their messages, checks their form, and hands well-formed requests to a SessionHandler (Control). A
// session that breaks a rule is closed with a reason; the others are not affected.
//
// A session passes through these states: accepted (counted against its user's limit, and closed after
// hello_ms without a hello), greeted (it has a page and eventfds, and may ask for anything), ended. It
// ends when its process ends, when its socket is closed, or when it is refused. For its ranks the
// handler's on_session_ended() is the end.
//
// Fairness: a session is read a few messages at a time, and not at all while an answer to a question is
// on its way. Resources that last are claimed from UserLimits.
//
// Owner and thread: Control; the control thread.
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

// A rank of a process in a group that has been made. It exists from the answer to the join until the rank
// leaves or the session ends.
struct Seat {
  // index of the engine that has the group
  uint32_t engine = 0;
  // the group's id
  uint64_t group = 0;
  // The group's memory on this node. It alone says which group this is: an id is drawn elsewhere, and so
  // decides nothing.
  std::weak_ptr<const SharedMemory> memory;
  // one of the user's seats
  std::shared_ptr<UserLimits::Claim> claim;
  // The process has reported a failure, or that its deadline has passed. A group fails once, so later
  // reports of the same kind are ignored.
  bool told_failure = false;
  bool told_deadline = false;

  // Whether both seats are in the same group: their memory is one object, even if it is freed.
  bool same_group(const Seat& other) const {
    return !memory.owner_before(other.memory) && !other.memory.owner_before(memory);
  }
};

// Memory that a process shares with the other ranks of one of its groups.
struct SharedBlock {
  // the process's seat in the group
  uint32_t handle = 0;
  std::shared_ptr<SharedMemory> memory;
  // which file it is: if it is shared in several groups it is mapped once
  dev_t device = 0;
  ino_t inode = 0;
  UserLimits::Claim claim;
  // for its size; shared by all blocks of the file
  std::shared_ptr<UserLimits::Claim> size_claim;
};

// A question, as hdtctl asks it. Until the process has read the answer nothing else of it is read.
struct OpenQuestion {
  UserLimits::Claim claim;
  bool answered = false;
  // when answered: the process must have read the answer by then
  Deadline read_until = Deadline::never();
};

// A process that is connected.
struct ClientSession {
  UniqueFd socket;
  // A pidfd of the process (base/process_watch.h). Not valid if the system has none, or before the hello.
  UniqueFd process;
  // the process's pid, user and group, as the kernel reported them when it connected
  PeerCredentials credentials{};
  // its hello has come, and it was welcomed
  bool greeted = false;
  UserLimits::Claim claim;
  std::shared_ptr<SessionLink> link;
  // by handle, which the process uses as the name of its rank
  std::map<uint32_t, Seat> seats;
  // what it shares, by number
  std::map<uint64_t, SharedBlock> memories;
  // at most one
  std::optional<OpenQuestion> question;
  // for answers with descriptors that were sent while another one was unread; dropped when all is read
  std::vector<UserLimits::Claim> unread;

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

// "pid 12"; or that the process has no number here, as it is in a PID namespace that is not seen from
// this one.
std::string pid_text(const PeerCredentials& credentials);

// Handles well-formed requests: Control. ClientSessions calls it on the control thread, with the
// number of a session that exists. A callee may end sessions only through ClientSessions' public
// functions.
class SessionHandler {
 public:
  virtual ~SessionHandler() = default;
  // The session was greeted: engines are to watch its page.
  virtual void on_opened(uint64_t session) = 0;
  // Each of the next ones is one message of the process (ipc::Kind). Requests are answered with
  // send().
  virtual void on_rendezvous(uint64_t session) = 0;
  virtual void on_join(uint64_t session, const ipc::JoinRequest& request) = 0;
  virtual void on_notice(uint64_t session, ipc::Kind kind, const ipc::GroupNotice& notice) = 0;
  virtual void on_status(uint64_t session) = 0;
  virtual void on_explain(uint64_t session, const ipc::ExplainRequest& request) = 0;
  virtual void on_ask(uint64_t session, const ipc::Question& question) = 0;
  // The process shares memory in one of its groups, in which it has the seat `block.handle`. The handler
  // sends `answer` when the engine of that group knows the memory; the process then may name it in calls.
  virtual void on_share(uint64_t session, const ipc::MemoryAnswer& answer, const SharedBlock& block) = 0;
  // The process shares memory that this daemon's predecessor had accepted, before it brings the group. There
  // is no answer.
  virtual void on_shared_before(uint64_t session, uint64_t number, const SharedBlock& block) = 0;
  // The memory is shared no longer: engines are to know of it.
  virtual void on_unshared(uint64_t number) = 0;
  // The process brings a group of this daemon's predecessor. An error is sent to the process and does not
  // end its session.
  virtual Status on_adopt(uint64_t session, const ipc::AdoptRequest& request, UniqueFd segment) = 0;
  // The process wants to map memory that another rank shares.
  virtual void on_open(uint64_t session, const ipc::MemoryRequest& request) = 0;
  // The session ends; `how` completes "rank 3 ...". Its entry is erased afterwards. May be called twice
  // for one session if something throws.
  virtual void on_session_ended(uint64_t session, const std::string& how) = 0;
};

class ClientSessions {
 public:
  // The first five are sent to processes in the Welcome.
  struct Options {
    std::string software;
    std::string node_name;
    uint32_t host_pid = 0;
    uint32_t engines = 1;
    int64_t restart_ms = 0;
    // unix groups whose members may connect; empty: everyone
    std::vector<std::string> allow_groups;
    // how long, in ms, a connection may wait with its hello
    int64_t hello_ms = 5'000;
  };
  // Looks up the numbers of the groups, which may take long (NSS). So it must not be made on the control
  // thread.
  ClientSessions(Options options, UserLimits& limits, SessionHandler& handler);

  // Begins to listen at `path`. The epoll set gets every socket, and a pidfd for each session; an event's
  // data is the descriptor. Errors of listen_seqpacket().
  Status listen(const std::string& path, int epoll);
  // Closes the listener and removes its path. Sessions go on.
  void stop_listening();
  int listener() const { return listener_.get(); }
  // Accepts those who wait, up to 64 in one turn. If the daemon or a user is at a limit, connections are
  // refused with a reason. After some refusals, or if not even a refusal is possible, the listener is
  // left alone for a while, so that the daemon sleeps.
  void accept_some();
  // Does what is due: watches the listener again, refuses connections without a hello, looks whether
  // answers were read.
  void on_time();
  Deadline next_time() const;
  // A session's socket is readable, or its process has ended. Messages from before its end are
  // handled in either case. Ignores a descriptor that belongs to no session.
  void on_readable(int fd);
  // Something that was done for the session of this descriptor threw: the session ends.
  void end_of(int fd, const std::string& why);
  // Handles everything that processes have sent before now, except for sessions that have a question
  // open.
  void read_all();
  // Null: it has ended. Valid until the session ends.
  ClientSession* find(uint64_t number);
  // The session that shares that memory, or null.
  const ClientSession* owner_of(uint64_t memory) const;
  // The memory is shared no more. A number that the session does not share is ignored.
  void forget_memory(ClientSession& client, uint64_t memory);
  // Ends a seat: the process has departed from the group. Memory that it shared there is shared no more.
  void end_seat(ClientSession& client, uint32_t handle);
  const std::map<uint64_t, ClientSession>& all() const { return sessions_; }
  // Sends a message, with descriptors if there are any. False: the session has ended, or ends now because
  // it does not read its messages. Never blocks.
  bool send(uint64_t session, std::span<const std::byte> bytes, std::span<const int> fds = {});
  // Sends the process the reason and ends the session.
  void refuse(uint64_t session, Code code, const std::string& why);
  void refuse_all(Code code, const std::string& why);
  // Stops listening and shuts all sockets without a message, as a kill would, also for processes that
  // hold copies of the sockets. Sessions are not ended here: the caller stops reading them.
  void abandon();
  // Shuts the session's socket without a message: the process learns that the session has ended, and so
  // does the daemon, at the next read. Takes no memory.
  void hang_up(uint64_t number);

 private:
  // Refuses a connection that cannot become a session.
  void turn_away(UniqueFd socket, const Status& why);
  // Logs that connections are refused, at most every 10 s.
  void say_limit(const Status& why);
  // Leaves the listener alone for a while.
  void pause(int64_t ms);
  // Sets what epoll reports of the listener; 0: nothing.
  void watch_listener(uint32_t events);
  // The numbers of all sessions, for loops in which sessions end.
  std::vector<uint64_t> numbers() const;
  // Handles at most so many messages of the session; what is left comes in the next turn.
  void receive(uint64_t number, size_t messages);
  // Handles one message. An error ends the session, with its text as the reason.
  Status handle(uint64_t number, Packet& packet);
  // The hello: makes the page and eventfds, and welcomes the process.
  Status greet(uint64_t number, const Packet& packet);
  // Watches the process itself: its end ends the session, whoever holds copies of its socket.
  Status watch_process(uint64_t number, ClientSession& client);
  // Handles what the process has sent, and ends the session.
  void process_ended(uint64_t number);
  // kShare and kAdopt.
  Status share(uint64_t number, Packet& packet);
  Status adopt(uint64_t number, Packet& packet);
  // Opens a question. False: the user has too many open, and the process has got that as the answer. An
  // error ends the session.
  Result<bool> begin_question(uint64_t number, ipc::Kind answer);
  // Closes the questions whose answer was read.
  void look_at_questions();
  // Claims an answer with descriptors, if earlier messages are still unread. kSystem at the limit.
  Status claim_unread(ClientSession& client);
  // Adds the session's socket to the epoll set, or takes it out.
  void hear(const ClientSession& client, bool heard);
  // client_memory.cc
  Result<uint64_t> free_memory_number() const;
  // Whether security.allow_groups admits the process.
  bool allowed(const ClientSession& client) const;
  // Logs a line that the session's user has caused, if the user may cause one more.
  void warn_for(const ClientSession& client, const std::string& line);
  // Ends the session: informs the handler, and erases the entry.
  void end(uint64_t number, const std::string& how);

  Options options_;
  // the numbers of options_.allow_groups
  std::vector<gid_t> allowed_;
  UserLimits& limits_;
  SessionHandler& handler_;
  int epoll_ = -1;
  std::string path_;
  UniqueFd listener_;
  // lets it accept, and refuse, a connection when there are no descriptors left
  SpareDescriptor spare_;
  // a connection was refused at a limit of the daemon, and none was accepted since
  bool at_limit_ = false;
  // when say_limit() may log again
  Deadline say_again_ = Deadline::never();
  // set: the listener is left alone until then
  Deadline go_on_at_ = Deadline::never();
  uint64_t next_number_ = 1;
  std::map<uint64_t, ClientSession> sessions_;
  // sessions by the numbers of the memory that they share
  std::unordered_map<uint64_t, uint64_t> memory_owners_;
  // sessions that may not have sent a hello, the oldest first; some have, or have ended
  std::deque<std::pair<Deadline, uint64_t>> silent_;
  // sessions with a question
  std::set<uint64_t> asking_;
  // when look_at_questions() is due
  Deadline look_at_ = Deadline::never();
  // sessions by their sockets, and by the pidfds of their processes
  std::map<int, uint64_t> by_fd_;
};

}  // namespace hdt::daemon
