// session.h: this process's session with its node's daemon. There is one for each daemon and process,
// shared by all communicators. A reader thread waits for the daemon's messages; all other functions are
// called from any thread.
//
// States of the daemon, as the session sees it (docs/glossary.md):
//   connected   it has answered the greeting; requests are sent and answered
//   suspended   its socket is closed, and it may be started again within `restart_ms`; requests wait
//   failed      no other daemon came in time, or it ended the session (failed()); requests fail
//
// When the daemon ends without a message, the reader thread waits for one that is started in its place.
// It hands over the memory of the process's groups and what the process shares, and the session goes on.
// A request that was sent and not answered is sent again, except for joining a group. If the daemon was
// embedded, the session waits only when it needs one: then it may host the next one itself.
//
// Lock order: question_mutex_, then send_mutex_, then mutex_. mutex_ is never held while a caller's
// function is called or a request is waited for.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/clock.h"
#include "base/seqpacket.h"
#include "base/shared_memory.h"
#include "ipc/messages.h"
#include "ipc/wake_page.h"

namespace hdt::client {

// A seat in a group: what the daemon gave for a successful join.
struct JoinedGroup {
  // The segment (ipc/segment.h). Its descriptor is kept open: a successor of the daemon gets it.
  SharedMemory memory;
  // Names the seat in this session's messages and in the wake page.
  uint32_t handle = 0;
  // The engine thread of the daemon that has the group.
  uint32_t engine = 0;
  uint32_t local_index = 0;
  // Which daemon of this session knows the seat: its number in the order of daemons, see Session::life_.
  uint64_t life = 0;
  // The group's secret, which only its members have.
  ipc::GroupKey secret{};
};

// Made by find_daemon() (daemon_finder.h), which shares it within the process; owned by all
// communicators on it. The functions below return kDaemonLost, or the reason that the daemon gave, once
// the session is failed. Functions that wait for an answer give up after ten seconds of a daemon's life
// (kTimeout), unless a function states another time. While the daemon is suspended they wait for its
// successor, without counting that time.
class Session {
 public:
  // Connects to the daemon at `socket` and exchanges versions, within `timeout_ms` and ten seconds.
  // kNoDaemon: nobody listens there, or the daemon is stuck. kDaemonLost: it closed the connection.
  // kVersion: another protocol. kSystem: a limit. Any other code: the daemon's refusal.
  //
  // `become_host` is called if the daemon that answers is embedded in a process. It returns a function
  // that makes this process the host of the next daemon, if no other process is. The reader thread calls
  // that function again and again while the daemon is suspended.
  static Result<std::shared_ptr<Session>> open(const std::string& socket,
                                               const std::function<std::function<void()>()>& become_host = {},
                                               int64_t timeout_ms = INT64_MAX);
  // Closes the connection and waits for the reader thread to end.
  ~Session();

  const std::string& socket_path() const { return path_; }
  // The greeting of the present daemon.
  const ipc::Welcome& daemon() const { return wire().welcome; }
  // Where other nodes' daemons can meet this one: addresses by commas, with the node id in front.
  Result<std::string> rendezvous_address();
  // Joins a group. Blocks until the group is made, or some seconds longer than `request.timeout_ms`. The
  // number in `request` is filled in here. Errors: those of the group (hdt.h), and kDaemonLost if the
  // daemon ended meanwhile and no other one can be asked.
  //
  // `why_not`, if there is one, is asked while it waits, from this thread. When it returns a failure, the
  // rank withdraws: that is the error of all ranks that have joined or will.
  Result<JoinedGroup> join(ipc::JoinRequest request, const std::function<Status()>& why_not = {});
  // For a rank that cannot even join: no group is made, and all who wait for it get `why`. Waits for some
  // seconds at most until they have it.
  void decline(ipc::JoinRequest request, const Status& why);
  // For a rank that cannot use a group that it has joined: fails the group with the reason, on all
  // ranks, and leaves it. `rank` is -1 if it is not known. Returns what the others are sent.
  Status give_up_seat(uint32_t handle, int32_t rank, const Status& why);
  // The daemon's description of itself, as JSON.
  Result<std::string> status_json();
  // Which algorithm a call takes, and why, as JSON. kInvalidUsage, kInvalidArgument: there is no such
  // group or call.
  Result<std::string> explain_json(const ipc::ExplainRequest& request);
  // The answer to another question of an operator (ipc::Question), as JSON.
  Result<std::string> ask_json(const ipc::Question& question);
  // Gives the daemon memory of this process, for other ranks of the group with `handle` to open. Returns
  // its number. The descriptor of `memory` must stay open until unshare() or forget_shared(), as a
  // successor of the daemon gets it. kSystem: a limit of shared memory.
  Result<uint64_t> share(uint32_t handle, const SharedMemory& memory);
  // The memory is not shared any more. Not answered, so it never waits for a daemon.
  void unshare(uint64_t memory);
  // To be called before this process departs from the group with `handle`: memory that is shared in it goes
  // with the seat, and no successor is given it.
  void forget_shared(uint32_t handle);
  // Maps memory that another rank of the group with `handle` shares in it, by its number.
  Result<SharedMemory> open_memory(uint32_t handle, uint64_t memory);
  // Sends a notice about a group: kLeave, kFail or kDeadline. Not answered. While the daemon is
  // suspended the notice is kept for its successor.
  Status notify(ipc::Kind kind, const ipc::GroupNotice& notice);
  // Makes engine `engine` look at the group with `handle`: no system call while the engine is awake.
  // Never waits; takes no lock.
  void ring(uint32_t engine, uint32_t handle);

  // A group that this process is in, as its communicator describes it to the session. Both functions are
  // called by the reader thread, without a lock of the session.
  struct Membership {
    // Owned by the communicator; must stay until unwatch(). The session updates its `life`.
    JoinedGroup* joined = nullptr;
    // The daemon is failed: no other one has come for the group. Or the successor does not take the group
    // over.
    std::function<void(const Status&)> on_failed;
    // The daemon is suspended: its socket is closed, and another one may come.
    std::function<void()> on_suspended;
  };
  // Adds a group. Returns a number for unwatch(); 0 if the session is failed already. May wait for a
  // successor.
  uint64_t watch(Membership membership);
  // Removes a group; 0 and unknown numbers are ignored. No callback of it begins afterwards, except for
  // one for which the reader thread has already taken the list.
  void unwatch(uint64_t number);
  // For the end of the process: ends the session without a message. Ranks that have not departed are
  // then failed, as they are when a process dies.
  void close();
  // Returns when a daemon, this one or its successor, has answered, or when it is known that none will.
  void await_daemon();
  // For tests: how long answers may take, in place of ten seconds. Before the first request.
  void set_answer_ms(int64_t answer_ms) { answer_ms_ = answer_ms; }
  // True once the session is failed, for good.
  bool failed() const { return failed_.load(std::memory_order_acquire); }

 private:
  // Counts a thread in `count` while it lives.
  class Counted {
   public:
    explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    std::atomic<int>& count_;
  };
  // The connection to one daemon, from its greeting on. Constant, except for what the page holds.
  struct Wire {
    UniqueFd socket;
    ipc::Welcome welcome;
    // The wake page (ipc/wake_page.h), and the eventfd of each engine.
    SharedMemory page;
    std::vector<UniqueFd> eventfds;
  };

  // The maximum time for connecting and the first answer, in ms.
  static constexpr int64_t kGreetingMs = 10'000;
  // How often a wait looks whether there is still something to wait for, in ms.
  static constexpr int64_t kWhyNotMs = 50;
  // How long a daemon may read nothing while messages to it fill the socket, in ms.
  static constexpr int64_t kSendMs = 10'000;

  Session() = default;
  const Wire& wire() const { return *wire_.load(std::memory_order_acquire); }
  // Rings at one daemon.
  static void ring_at(const Wire& daemon, uint32_t engine, uint32_t handle);
  // Connects and exchanges the first messages. Errors as open().
  static Result<std::unique_ptr<Wire>> greet(const std::string& path, int64_t timeout_ms);
  // The reader thread: read_on(), guarded against a lack of memory.
  void read();
  // Hears one daemon after the other until the session is failed.
  void read_on();
  // Handles messages until the daemon has ended; returns why. `final`: it has itself ended
  // the session.
  Status hear(bool& final);
  // Files an answer for the thread that waits for it.
  void on_packet(Packet packet);
  // Gives back what came with an answer that is too late.
  void undo(ipc::Kind kind, const Packet& packet);
  // The successor does not take a group over.
  void on_not_adopted(const ipc::GroupNotice& notice);
  // Waits for another daemon in the place of the one that has ended, and hands over. Failure: none will
  // come.
  Status find_successor();
  // Waits until this process needs a daemon: it has a group, or a request waits. False: the session
  // ends.
  bool await_need();
  // Asks one daemon once. `life`: the daemon that was asked.
  Result<JoinedGroup> join_once(const ipc::JoinRequest& request, uint64_t& life,
                                const std::function<Status()>& why_not);
  // Maps the memory that came with the daemon's success.
  Result<JoinedGroup> take_joined(const ipc::Joined& joined, Packet& packet, uint64_t life);
  // Whether a join that failed may be sent to the next daemon.
  bool can_ask_again(const ipc::JoinRequest& request, const std::string& own_address,
                     const Status& why) const;
  // Gives a new daemon what this process shares, its groups, and the failures that it has reported.
  Status hand_over(Wire& wire);
  // The session is failed from now on: wakes all waiters and calls on_failed of all groups.
  void mark_failed(const Status& why);
  // Sends `bytes` and waits for the answer filed under `number`, at most `answer_ms` of one daemon's
  // life. If the daemon is replaced meanwhile, its successor is asked. With `only_in_life` no second
  // daemon is asked (kDaemonLost); it is set to the life of the one that was. `answered_in` is set to the
  // life of the daemon that has answered. `why_not` is asked every kWhyNotMs; its failure ends the wait.
  Result<Packet> ask(uint64_t number, std::span<const std::byte> bytes, int64_t answer_ms,
                     std::span<const int> fds = {}, uint64_t* only_in_life = nullptr,
                     uint64_t* answered_in = nullptr, const std::function<Status()>& why_not = {});
  // For questions whose answer is a text with JSON behind it, or a refusal.
  Result<std::string> json_answer(ipc::Kind kind, std::span<const std::byte> question);
  // kShare and kOpen. Fills in the number of the request. `answered_in`: as for ask().
  Result<Packet> ask_memory(ipc::Kind kind, ipc::MemoryRequest request, std::span<const int> fds,
                            uint64_t* answered_in = nullptr);
  // Sends one message; send_mutex_ is held. A daemon that reads nothing for too long is given up
  // (kDaemonLost).
  Status send(const Wire& to, std::span<const std::byte> bytes, std::span<const int> fds = {});
  // Sends a message that needs no answer, or keeps it for the successor; send_mutex_ is held.
  Status send_notice(std::span<const std::byte> bytes);

  std::string path_;
  std::function<void()> become_host_;
  // How long an answer may take, in ms. The daemon itself keeps the deadline of a join; after that many ms
  // more it counts as stuck.
  int64_t answer_ms_ = 10'000;
  // All daemons so far. Earlier ones are kept, too, as a thread may be ringing there without a lock.
  std::vector<std::unique_ptr<Wire>> wires_;
  // The present daemon, or the latest one while there is none.
  std::atomic<Wire*> wire_{nullptr};
  // Held while a message is sent, and while wire_ changes: so notices to one daemon keep their order,
  // and none goes to a daemon that has not been handed over to.
  std::mutex send_mutex_;
  // Answers without a number are filed by kind, so only one such question is asked at a time.
  std::mutex question_mutex_;
  // Guards what follows. The other mutexes come before it.
  std::mutex mutex_;
  std::condition_variable changed_;
  // By the number of the request, or by kind (kByKind in session.cc).
  std::map<uint64_t, Packet> answers_;
  // How many answers are still to come for which nobody waits any more, by the same numbers. The daemon
  // answers each request once, and those of one kind in order. So that many are dropped, and none of them is
  // taken for the answer to the next question of that kind.
  std::map<uint64_t, uint32_t> late_;
  uint32_t next_request_ = 1;
  // By the number that watch() returned.
  std::map<uint64_t, Membership> memberships_;
  uint64_t next_membership_ = 1;
  struct Shared {
    // The group in which the memory is used.
    uint32_t handle;
    int fd;
  };
  // By the memory's number.
  std::map<uint64_t, Shared> shared_;
  // Notices for the successor.
  std::vector<std::vector<std::byte>> unsent_;
  // Failures that were reported, by handle. They are sent to every successor again, as nothing says
  // whether the daemon before had passed them on.
  std::map<uint32_t, std::vector<std::byte>> told_;
  // Counts daemons: the number of the present one, or of the latest one while there is none.
  uint64_t life_ = 1;
  // Threads that need the daemon. ask() counts itself with mutex_ held, so that await_need() does not
  // miss it.
  std::atomic<int> asking_{0};
  // False while the daemon is suspended.
  bool connected_ = true;
  bool closing_ = false;
  // Valid once failed_ is true.
  Status failed_why_;
  std::atomic<bool> failed_{false};
  // False once the session was destroyed. The reader thread holds a copy of the pointer: the session may
  // end in one of its callbacks.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
  std::thread reader_;
};

}  // namespace hdt::client
