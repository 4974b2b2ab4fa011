// session.h: this process's session with its node's daemon. One per daemon and process, shared by all
// communicators. A reader thread waits for what the daemon says; everything else is called from any thread.
//
// When the daemon is gone without a word the session waits for one that is started in its place, hands over
// the memory of its groups and what it shares, and goes on. Requests wait meanwhile. What was asked and not
// answered is asked again, but for joining a group. Where the daemon was embedded, a session waits only when
// it needs one.
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
#include "ipc/page.h"

namespace hdt::client {

struct JoinedGroup {
  SharedMemory memory;
  uint32_t handle = 0;
  uint32_t engine = 0;
  uint32_t local_index = 0;
  uint64_t life = 0;           // of the daemon that gave it
  session::GroupKey secret{};  // of the group: only its members have it
};

class Session {
 public:
  // Connects to the daemon at `socket` and exchanges versions, within `timeout_ms` and ten seconds.
  // `become_host`, where the daemon that answers is embedded in a process, gives what makes this process the
  // host of the next one, if no other is: the reader thread calls that, again and again, when it is gone.
  static Result<std::shared_ptr<Session>> open(const std::string& socket,
                                               const std::function<std::function<void()>()>& become_host = {},
                                               int64_t timeout_ms = INT64_MAX);
  ~Session();

  const std::string& socket_path() const { return path_; }
  const session::Welcome& daemon() const { return wire().welcome; }
  // Where other nodes' daemons can meet this one.
  Result<std::string> rendezvous_address();
  // Blocks until the group is made or `request.timeout_ms` (and some) has passed.
  Result<JoinedGroup> join(session::JoinRequest request);
  // For a rank that cannot use a group it has joined: fails the group with the reason, on all ranks, and
  // leaves it. Returns what the others are told.
  Status give_up_seat(uint32_t handle, int32_t rank, const Status& why);
  Result<std::string> status_json();
  // Which algorithm a call takes, and why, as JSON.
  Result<std::string> explain_json(const session::ExplainRequest& request);
  // Other questions of operators (session::Question).
  Result<std::string> ask_json(const session::Question& question);
  // Gives the daemon memory of this process, for other ranks of the group with `handle` to open. Returns its
  // number.
  Result<uint64_t> share(uint32_t handle, const SharedMemory& memory);
  void unshare(uint64_t memory);
  // Before the group with `handle` is left: what is shared in it goes with the seat, and no successor is
  // given it.
  void forget_shared(uint32_t handle);
  // Maps memory that another rank of the group with `handle` shares in it.
  Result<SharedMemory> open_memory(uint32_t handle, uint64_t memory);
  Status notify(session::Kind kind, const session::GroupNotice& notice);
  // Makes engine `engine` look at the group with `handle`: no system call while the engine is awake.
  void ring(uint32_t engine, uint32_t handle);

  // A group this process is in. `on_lost` is called (by the reader thread) when the daemon is gone and no
  // other one has come for it.
  struct Membership {
    JoinedGroup* joined = nullptr;
    std::function<void(const Status&)> on_lost;
    std::function<void()> on_away;  // the same when it is gone, and another one may come
  };
  // Returns a number for unwatch(); 0 where the daemon that gave the group is gone already.
  uint64_t watch(Membership membership);
  void unwatch(uint64_t number);
  // Before the end of the process: ranks that have not left are lost, and say nothing of it themselves.
  void close();
  // Returns when a daemon, this one or its successor, has answered, or it is known that none will.
  void await_daemon();
  bool lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  // Counts a thread while it lives.
  class Counted {
   public:
    explicit Counted(std::atomic<int>& count) : count_(count) { ++count_; }
    ~Counted() { --count_; }
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

   private:
    std::atomic<int>& count_;
  };
  // The connection to one daemon.
  struct Wire {
    UniqueFd socket;
    session::Welcome welcome;
    SharedMemory page;
    std::vector<UniqueFd> eventfds;
  };

  static constexpr int64_t kGreetingMs = 10'000;
  // So long a daemon may read nothing, while what was said to it fills the socket.
  static constexpr int64_t kSendMs = 10'000;

  Session() = default;
  const Wire& wire() const { return *wire_.load(std::memory_order_acquire); }
  static void ring_at(const Wire& daemon, uint32_t engine, uint32_t handle);
  static Result<std::unique_ptr<Wire>> greet(const std::string& path, int64_t timeout_ms);
  void read();
  void read_on();
  // Reads until the daemon has ended; why. `final`: it has said so itself.
  Status hear(bool& final);
  void on_packet(Packet packet);
  void on_not_adopted(const session::GroupNotice& notice);
  // Waits for another daemon in the place of the one that is gone.
  Status find_successor();
  // False: the session ends.
  bool await_need();
  Result<JoinedGroup> join_once(const session::JoinRequest& request, uint64_t& life);
  bool can_ask_again(const session::JoinRequest& request, const std::string& own_address,
                     const Status& why) const;
  Status hand_over(Wire& wire);
  void mark_lost(const Status& why);
  // Sends `bytes` and waits for the answer filed under `number`, at most `answer_ms` of a daemon's life. With
  // `only_in_life` no second daemon is asked; it becomes the life of the one that was.
  Result<Packet> ask(uint64_t number, std::span<const std::byte> bytes, int64_t answer_ms,
                     std::span<const int> fds = {}, uint64_t* only_in_life = nullptr);
  Result<std::string> json_answer(session::Kind kind, std::span<const std::byte> question);
  Result<Packet> ask_memory(session::Kind kind, session::MemoryRequest request, std::span<const int> fds);
  Status send(const Wire& to, std::span<const std::byte> bytes, std::span<const int> fds = {});
  Status send_notice(std::span<const std::byte> bytes);

  std::string path_;
  std::function<void()> become_host_;
  std::vector<std::unique_ptr<Wire>> wires_;  // earlier ones, too: somebody may be ringing there
  std::atomic<Wire*> wire_{nullptr};
  std::mutex send_mutex_;
  std::mutex question_mutex_;  // answers without a number are filed by kind: one such question at a time
  std::mutex mutex_;           // guards what follows; the others come before it
  std::condition_variable changed_;
  std::map<uint64_t, Packet> answers_;
  uint32_t next_request_ = 1;
  std::map<uint64_t, Membership> memberships_;
  uint64_t next_membership_ = 1;
  struct Shared {
    uint32_t handle;  // of the group that it is used in
    int fd;
  };
  std::map<uint64_t, Shared> shared_;           // by number
  std::vector<std::vector<std::byte>> unsent_;  // notices for the successor
  std::map<uint32_t, std::vector<std::byte>>
      told_;                    // failures by handle: told again, as nothing says who has heard them
  uint64_t life_ = 1;           // counts daemons
  std::atomic<int> asking_{0};  // threads that need the daemon; counted up with the mutex
  bool connected_ = true;
  bool closing_ = false;
  Status lost_why_;
  std::atomic<bool> lost_{false};
  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  // for the reader, in whose callbacks the session may end
  std::thread reader_;
};

}  // namespace hdt::client
