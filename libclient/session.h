// session.h: this process's session with its node's daemon. One per daemon and process, shared by all communicators. A
// reader thread waits for what the daemon says; everything else is called from any thread.
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
#include "session/messages.h"
#include "session/page.h"

namespace hdt::client {

struct JoinedGroup {
  SharedMemory memory;
  uint32_t handle = 0;
  uint32_t engine = 0;
  uint32_t local_index = 0;
};

class Session {
 public:
  // Connects to the daemon at `socket` and exchanges versions.
  static Result<std::shared_ptr<Session>> open(const std::string& socket);
  ~Session();

  const std::string& socket_path() const { return path_; }
  const session::Welcome& daemon() const { return welcome_; }
  // Where other nodes' daemons can meet this one.
  Result<std::string> rendezvous_address();
  // Blocks until the group is made or `request.timeout_ms` (and some) has passed.
  Result<JoinedGroup> join(session::JoinRequest request);
  Result<std::string> status_json();
  // Which algorithm a call takes, and why, as JSON.
  Result<std::string> explain_json(const session::ExplainRequest& request);
  // Other questions of operators (session::Question).
  Result<std::string> ask_json(const session::Question& question);
  // Gives the daemon memory of this process, for other ranks of its groups to open. Returns its number.
  Result<uint32_t> share(const SharedMemory& memory);
  void unshare(uint32_t memory);
  // Maps memory that another rank of the group with `handle` shares.
  Result<SharedMemory> open_memory(uint32_t handle, uint32_t memory);
  Status notify(session::Kind kind, const session::GroupNotice& notice);
  // Makes engine `engine` look at the group with `handle`: no system call while the engine is awake.
  void ring(uint32_t engine, uint32_t handle);

  // Called (by the reader thread) when the daemon is gone. Returns a number for unwatch().
  uint64_t watch(std::function<void(const Status&)> on_lost);
  void unwatch(uint64_t number);
  bool lost() const { return lost_.load(std::memory_order_acquire); }

 private:
  Session() = default;
  Status greet();
  void read();
  void on_packet(Packet packet);
  void mark_lost(const Status& why);
  // Sends `bytes` and waits for the answer filed under `number`.
  Result<Packet> ask(uint64_t number, std::span<const std::byte> bytes, const Deadline& deadline,
                     std::span<const int> fds = {});
  Result<std::string> json_answer(session::Kind kind, std::span<const std::byte> question);
  Result<Packet> ask_memory(session::Kind kind, session::MemoryRequest request, std::span<const int> fds);

  std::string path_;
  UniqueFd socket_;
  session::Welcome welcome_;
  SharedMemory page_;
  std::vector<UniqueFd> eventfds_;
  std::mutex mutex_;  // guards what follows; send_mutex_ before it
  std::mutex send_mutex_;
  std::mutex question_mutex_;  // answers without a number are filed by kind: one such question at a time
  std::condition_variable answered_;
  std::map<uint64_t, Packet> answers_;
  uint32_t next_request_ = 1;
  std::map<uint64_t, std::function<void(const Status&)>> watchers_;
  uint64_t next_watcher_ = 1;
  Status lost_why_;
  std::atomic<bool> lost_{false};
  std::thread reader_;
};

}  // namespace hdt::client
