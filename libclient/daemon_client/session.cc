// session.cc: the reader thread, requests and notices. session_greeting.cc has the beginning of a
// session, session_life.cc the parts of a request that outlives its daemon.
//
// Requests work like this. The asking thread sends its message and waits on changed_. The reader thread
// receives the answer, files it in answers_ under the request's number, and wakes all waiters; the one
// whose number it is takes it. If the daemon ends, the filed answers are dropped, life_ counts up, and
// each waiter sends its request again to the next daemon.
#include "libclient/daemon_client/session.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/limits.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace hdt::client {

using ipc::Kind;

namespace {

// Answers are filed by the number of the request. Those without one are filed by their kind, above all
// numbers.
constexpr uint64_t kByKind = uint64_t{1} << 32;
// How long an embedded daemon may take to greet, in ms. If a host was killed, a child of it may hold a
// copy of the socket on which nobody answers, and the next host is about to take its place.
constexpr int64_t kNextGreetingMs = 1'000;
// How often a session without a daemon looks for one, in ms.
constexpr int64_t kLookMs = 10;

// The text of an answer that comes as a memfd. The daemon's memory may lack the closing zero.
Result<std::string> text_of(Packet& packet) {
  HDT_RETURN_IF_ERROR(packet.descriptors);
  if (packet.fds.size() != 1) return Status(Code::kInternal, "the daemon's answer lacks its text");
  auto memory = SharedMemory::map(std::move(packet.fds[0]));
  if (!memory.is_ok()) return memory.status();
  const auto* text = reinterpret_cast<const char*>(memory.value().data());
  return std::string(text, ::strnlen(text, memory.value().size()));
}

}  // namespace

Session::~Session() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
    // Ends the reader's blocking receive.
    ::shutdown(wire().socket.get(), SHUT_RDWR);
    changed_.notify_all();
  }
  if (!reader_.joinable()) return;
  // The last communicator may be released in a callback, on the reader's own thread, which cannot wait
  // for itself. It looks at *alive_ after each callback and ends without touching the session again.
  if (reader_.get_id() == std::this_thread::get_id()) {
    *alive_ = false;
    reader_.detach();
  } else {
    reader_.join();
  }
}

// Without memory the session cannot go on, but the process can.
void Session::read() {
  const auto alive = alive_;
  try {
    read_on();
  } catch (const std::bad_alloc&) {
    if (*alive)
      mark_failed(
          {Code::kSystem, "process " + own_process() + " has no memory to receive its daemon's messages"});
  }
}

// After every call that may run a callback, *alive_ says whether the session still exists.
void Session::read_on() {
  const auto alive = alive_;
  for (;;) {
    bool final = false;
    const Status ended = hear(final);
    if (!*alive) return;
    if (final) return mark_failed(ended);
    const Status found = find_successor();
    if (!*alive) return;
    if (!found.is_ok()) return mark_failed(found);
  }
}

// Blocks in receive_packet(). A refusal after the greeting is the daemon's way to end a session with a
// reason; anything unexpected is ignored or taken for the end.
Status Session::hear(bool& final) {
  const auto alive = alive_;
  for (;;) {
    auto packet = receive_packet(wire().socket.get());
    if (!packet.is_ok()) return {Code::kDaemonLost, "the daemon at " + path_ + " ended"};
    const auto kind = ipc::kind_of(packet.value().bytes);
    if (kind.is_ok() && kind.value() == Kind::kRefused) {
      final = true;
      const auto text = ipc::decode_text(packet.value().bytes);
      return text.is_ok() ? Status(text.value().code, "the daemon at " + path_ + ": " + text.value().text)
                          : text.status();
    }
    on_packet(packet.take());
    if (!*alive) return {};
  }
}

// 1. Note that there is no daemon, and inform the communicators (on_suspended), without the lock.
// 2. Return if none will come. If the daemon was embedded, wait until this process needs one.
// 3. Until the deadline: host a daemon if possible, try to greet one, hand over.
// 4. Make the new connection the present one, send what has been kept for it, and ring for every group.
Status Session::find_successor() {
  const auto alive = alive_;
  const int64_t wait_ms = wire().welcome.restart_ms;
  const Status last(Code::kDaemonLost, "the daemon at " + path_ + " ended");
  std::string since = " and was not started again within " + std::to_string(wait_ms) + " ms";
  const bool embedded = wire().welcome.host_pid != 0;
  std::vector<std::function<void()>> suspended;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return last;
    connected_ = false;
    // Answers of the daemon that has ended belong to requests that will be sent again.
    answers_.clear();
    late_.clear();
    for (const auto& [number, membership] : memberships_) suspended.push_back(membership.on_suspended);
    changed_.notify_all();
  }
  for (const auto& tell : suspended) {
    if (tell) tell();
  }
  if (!*alive) return last;
  if (wait_ms == 0) return last;
  if (embedded && !await_need()) return last;
  const Deadline deadline = Deadline::after_ms(wait_ms);
  HDT_LOG_AT(embedded ? LogLevel::kInfo : LogLevel::kWarn,
             "{}; waiting up to {} ms for it to be started again", last.message(), wait_ms);
  for (;;) {
    if (become_host_) become_host_();
    const int64_t left_ms = std::max<int64_t>(deadline.remaining_ns() / kNsPerMs, kNextGreetingMs);
    auto wire = greet(path_, std::min(left_ms, embedded ? kNextGreetingMs : kGreetingMs));
    // A daemon that refuses has understood, so its refusal is final. One that is not there, or dies
    // again at once, may come yet.
    const Code code = wire.is_ok() ? Code::kSuccess : wire.status().code();
    if (wire.is_ok()) {
      const Status handed = hand_over(*wire.value());
      if (handed.is_ok()) {
        // Both locks: no notice may be sent between the hand-over and the kept notices, and every waiter
        // sees the new wire and `connected_` together.
        const std::lock_guard sending(send_mutex_);
        const std::lock_guard lock(mutex_);
        if (closing_) return last;
        wire_.store(wire.value().get(), std::memory_order_seq_cst);
        wires_.push_back(wire.take());
        for (const auto& notice : std::exchange(unsent_, {})) (void)send(this->wire(), notice);
        connected_ = true;
        // A thread that rang in between rang at the daemon that has ended.
        for (const auto& [number, membership] : memberships_)
          ring(membership.joined->engine, membership.joined->handle);
        changed_.notify_all();
        HDT_LOG_INFO("the daemon at {} is back", path_);
        return Status::ok();
      }
    } else if (code == Code::kSystem) {
      // This process or the daemon is at a limit, perhaps not for long.
      since = ", and this process could not go back to it: " + wire.status().message();
    } else if (code != Code::kNoDaemon && code != Code::kDaemonLost) {
      return wire.status();
    }
    std::unique_lock lock(mutex_);
    if (closing_) return last;
    if (deadline.expired()) {
      return {Code::kDaemonLost, last.message() + since};
    }
    changed_.wait_for(lock, std::chrono::milliseconds(kLookMs));
  }
}

void Session::on_packet(Packet packet) {
  const auto kind = ipc::kind_of(packet.bytes);
  if (!kind.is_ok()) return;
  uint64_t number = kByKind + static_cast<uint64_t>(kind.value());
  if (kind.value() == Kind::kJoined) {
    const auto joined = ipc::decode_joined(packet.bytes);
    if (!joined.is_ok()) return;
    number = joined.value().request;
  } else if (kind.value() == Kind::kMemory) {
    const auto answer = ipc::decode_memory_answer(packet.bytes);
    if (!answer.is_ok()) return;
    number = answer.value().request;
  } else if (kind.value() == Kind::kNotAdopted) {
    const auto notice = ipc::decode_notice(packet.bytes);
    if (notice.is_ok()) on_not_adopted(notice.value());
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    const auto late = late_.find(number);
    if (late == late_.end()) {
      answers_[number] = std::move(packet);
      changed_.notify_all();
      return;
    }
    if (--late->second == 0) late_.erase(late);
  }
  undo(kind.value(), packet);
}

// Nobody waits for the answer any more, so nobody would give back what came with it.
void Session::undo(Kind kind, const Packet& packet) {
  if (kind == Kind::kJoined) {
    const auto joined = ipc::decode_joined(packet.bytes);
    if (!joined.is_ok() || joined.value().code != Code::kSuccess) return;
    (void)give_up_seat(joined.value().handle, -1,
                       {Code::kTimeout, "the group was made after this process had stopped waiting for it"});
  } else if (kind == Kind::kMemory) {
    const auto answer = ipc::decode_memory_answer(packet.bytes);
    if (!answer.is_ok() || answer.value().code != Code::kSuccess) return;
    // The daemon ignores this for memory of others, which kOpen has asked for.
    unshare(answer.value().memory);
  }
}

void Session::on_not_adopted(const ipc::GroupNotice& notice) {
  // The session may end in a callback, so nothing of it is used from the first one on.
  const Status why(notice.code, "the daemon at " + path_ +
                                    " was started again and does not take the group over: " + notice.text);
  std::vector<Membership> refused;
  {
    const std::lock_guard lock(mutex_);
    // The callback is called once, so the group is removed first.
    std::erase_if(memberships_, [&](const auto& entry) {
      if (entry.second.joined->handle != notice.handle) return false;
      refused.push_back(entry.second);
      return true;
    });
  }
  for (const Membership& membership : refused) membership.on_failed(why);
}

// The callbacks run without the lock: they may call back into the session.
void Session::mark_failed(const Status& why) {
  std::map<uint64_t, Membership> memberships;
  {
    const std::lock_guard lock(mutex_);
    failed_why_ = why;
    failed_.store(true, std::memory_order_release);
    memberships.swap(memberships_);
    changed_.notify_all();
  }
  for (auto& [number, membership] : memberships) membership.on_failed(why);
}

// 1. Wait until there is a daemon.
// 2. Send. A daemon that ends just now is no error: the loop finds its successor.
// 3. Wait for the answer, for as long as this daemon lives.
// 4. If another daemon came meanwhile, begin again, unless the caller wants one daemon only.
Result<Packet> Session::ask(uint64_t number, std::span<const std::byte> bytes, int64_t answer_ms,
                            std::span<const int> fds, uint64_t* only_in_life, uint64_t* answered_in,
                            const std::function<Status()>& why_not) {
  std::unique_lock lock(mutex_);
  const Counted asking(asking_);
  // The reader thread may wait in await_need().
  changed_.notify_all();
  for (;;) {
    // No deadline is needed: the reader thread gives up waiting for a daemon in time.
    changed_.wait(lock, [this] { return connected_ || failed(); });
    if (failed()) return failed_why_;
    const uint64_t life = life_;
    if (only_in_life != nullptr) *only_in_life = life;
    lock.unlock();
    {
      const std::lock_guard sending(send_mutex_);
      const Status sent = send(wire(), bytes, fds);
      if (!sent.is_ok() && sent.code() != Code::kDaemonLost) return sent;
    }
    lock.lock();
    const Deadline deadline = Deadline::after_ms(answer_ms);
    while (connected_ && life_ == life && !failed()) {
      if (auto found = answers_.find(number); found != answers_.end()) {
        Packet packet = std::move(found->second);
        answers_.erase(found);
        if (answered_in != nullptr) *answered_in = life;
        return packet;
      }
      if (deadline.expired()) {
        ++late_[number];
        return Status(Code::kTimeout, "the daemon at " + path_ + " does not answer");
      }
      if (why_not) {
        const Status why = why_not();
        if (!why.is_ok()) {
          ++late_[number];
          return why;
        }
      }
      // At most a second, as a deadline may be too far for a time point.
      const int64_t look_ns = why_not ? kWhyNotMs * kNsPerMs : kNsPerSecond;
      changed_.wait_for(lock, std::chrono::nanoseconds(std::min(deadline.remaining_ns(), look_ns)));
    }
    if (failed()) return failed_why_;
    if (only_in_life != nullptr)
      return Status(Code::kDaemonLost, "the daemon at " + path_ + " ended before the group was made");
  }
}

Result<std::string> Session::rendezvous_address() {
  const std::lock_guard lock(question_mutex_);
  auto packet = ask(kByKind + static_cast<uint64_t>(Kind::kRendezvousAt),
                    ipc::encode_empty(Kind::kRendezvous), answer_ms_);
  if (!packet.is_ok()) return packet.status();
  auto text = ipc::decode_text(packet.value().bytes);
  if (!text.is_ok()) return text.status();
  return text.value().text;
}

Result<std::string> Session::status_json() {
  const std::lock_guard lock(question_mutex_);
  auto packet =
      ask(kByKind + static_cast<uint64_t>(Kind::kStatusIs), ipc::encode_empty(Kind::kStatus), answer_ms_);
  if (!packet.is_ok()) return packet.status();
  return text_of(packet.value());
}

// Questions whose answer is a text with JSON behind it, or a refusal.
Result<std::string> Session::json_answer(Kind kind, std::span<const std::byte> question) {
  const std::lock_guard lock(question_mutex_);
  auto packet = ask(kByKind + static_cast<uint64_t>(kind), question, answer_ms_);
  if (!packet.is_ok()) return packet.status();
  const auto answer = ipc::decode_text(packet.value().bytes);
  if (!answer.is_ok()) return answer.status();
  if (answer.value().code != Code::kSuccess) return Status(answer.value().code, answer.value().text);
  return text_of(packet.value());
}

Result<std::string> Session::explain_json(const ipc::ExplainRequest& request) {
  return json_answer(Kind::kExplanationIs, ipc::encode(request));
}

Result<std::string> Session::ask_json(const ipc::Question& question) {
  return json_answer(Kind::kAnswerIs, ipc::encode(question));
}

// The daemon sends the failure to the others and forgets the seat.
Status Session::give_up_seat(uint32_t handle, int32_t rank, const Status& why) {
  const std::string who = rank < 0 ? "a rank" : "rank " + std::to_string(rank);
  const Status told(why.code(), who + " could not take its seat in the group: " + why.message());
  (void)notify(Kind::kFail, {handle, told.code(), rank, told.message()});
  (void)notify(Kind::kLeave, {handle, Code::kSuccess, -1, ""});
  const std::lock_guard lock(mutex_);
  // The daemon may give the handle to another group, which has not failed.
  told_.erase(handle);
  return told;
}

Result<Packet> Session::ask_memory(Kind kind, ipc::MemoryRequest request, std::span<const int> fds,
                                   uint64_t* answered_in) {
  {
    const std::lock_guard lock(mutex_);
    request.request = next_request_++;
  }
  auto packet = ask(request.request, ipc::encode(kind, request), answer_ms_, fds, nullptr, answered_in);
  if (!packet.is_ok()) return packet.status();
  const auto answer = ipc::decode_memory_answer(packet.value().bytes);
  if (!answer.is_ok()) return answer.status();
  if (answer.value().code != Code::kSuccess) return Status(answer.value().code, answer.value().text);
  return packet;
}

// Noted after the daemon has it. If the daemon ends before, the request is sent again to its successor,
// which gives a number of its own. The same holds if a successor has come between the answer and the note:
// hand_over() has not given it this memory, and a call that names the number would fail there.
Result<uint64_t> Session::share(uint32_t handle, const SharedMemory& memory) {
  const std::array<int, 1> fds = {memory.fd()};
  for (;;) {
    uint64_t life = 0;
    auto packet = ask_memory(Kind::kShare, {0, handle, 0}, fds, &life);
    if (!packet.is_ok()) return packet.status();
    const uint64_t number = ipc::decode_memory_answer(packet.value().bytes).value().memory;
    // hand_over() counts daemons and reads shared_ under this lock.
    const std::lock_guard lock(mutex_);
    if (life != life_) continue;
    shared_[number] = {handle, memory.fd()};
    return number;
  }
}

void Session::forget_shared(uint32_t handle) {
  const std::lock_guard lock(mutex_);
  std::erase_if(shared_, [handle](const auto& entry) { return entry.second.handle == handle; });
}

// send_mutex_ first: a successor either is not given the memory, or gets this message afterwards.
void Session::unshare(uint64_t memory) {
  const std::lock_guard sending(send_mutex_);
  {
    const std::lock_guard lock(mutex_);
    shared_.erase(memory);
  }
  (void)send_notice(ipc::encode(Kind::kUnshare, ipc::MemoryRequest{0, 0, memory}));
}

Result<SharedMemory> Session::open_memory(uint32_t handle, uint64_t memory) {
  auto packet = ask_memory(Kind::kOpen, {0, handle, memory}, {});
  if (!packet.is_ok()) return packet.status();
  HDT_RETURN_IF_ERROR(packet.value().descriptors);
  if (packet.value().fds.size() != 1) return Status(Code::kInternal, "the daemon's answer lacks the memory");
  auto mapped = SharedMemory::map(std::move(packet.value().fds[0]));
  // Nobody is given this memory by this process, so the descriptor is not needed.
  if (mapped.is_ok()) mapped.value().close_fd();
  return mapped;
}

Status Session::notify(Kind kind, const ipc::GroupNotice& notice) {
  const std::lock_guard sending(send_mutex_);
  const auto bytes = ipc::encode(kind, notice);
  // Noted before it is sent, as the daemon may end before it has passed it on.
  if (kind == Kind::kFail) {
    const std::lock_guard lock(mutex_);
    told_[notice.handle] = bytes;
  }
  return send_notice(bytes);
}

// kInProgress: the time of limit_sends() is over. The shutdown makes the reader see the end, and look
// for another daemon.
Status Session::send(const Wire& to, std::span<const std::byte> bytes, std::span<const int> fds) {
  const Status sent = send_packet(to.socket.get(), bytes, fds);
  if (sent.code() != Code::kInProgress) return sent;
  HDT_LOG_WARN("the daemon at {} has read nothing for {} ms: the session is given up", path_, kSendMs);
  ::shutdown(to.socket.get(), SHUT_RDWR);
  return {Code::kDaemonLost, "the daemon at " + path_ + " reads nothing"};
}

// send_mutex_ is held over the look and the sending, so find_successor() cannot take unsent_ in between.
Status Session::send_notice(std::span<const std::byte> bytes) {
  bool connected = false;
  {
    const std::lock_guard lock(mutex_);
    if (failed()) return failed_why_;
    connected = connected_;
  }
  const Status sent = connected ? send(wire(), bytes) : Status(Code::kDaemonLost, "");
  if (sent.code() != Code::kDaemonLost || wire().welcome.restart_ms == 0) return sent;
  const std::lock_guard lock(mutex_);
  unsent_.emplace_back(bytes.begin(), bytes.end());
  return Status::ok();
}

// If another daemon takes the place meanwhile, either this loop sees it and rings again, or that daemon
// sees what the ring is about: find_successor() stores the wire before it rings for all groups itself.
// Both sides are sequentially consistent.
void Session::ring(uint32_t engine, uint32_t handle) {
  for (const Wire* rung = nullptr; rung != wire_.load(std::memory_order_seq_cst);) {
    rung = wire_.load(std::memory_order_seq_cst);
    ring_at(*rung, engine, handle);
  }
}

void Session::ring_at(const Wire& daemon, uint32_t engine, uint32_t handle) {
  if (engine >= daemon.eventfds.size()) return;
  ipc::EngineBell& bell = reinterpret_cast<ipc::WakePage*>(daemon.page.data())->engines[engine];
  const uint32_t bit = handle % (ipc::kAttentionWords * 64);
  // Sequentially consistent with the engine's "set asleep, look again" (ipc/wake_page.h): one of the two sees
  // the other.
  bell.attention[bit / 64].fetch_or(uint64_t{1} << bit % 64, std::memory_order_seq_cst);
  if (bell.asleep.load(std::memory_order_seq_cst) != 0) ::eventfd_write(daemon.eventfds[engine].get(), 1);
}

void Session::unwatch(uint64_t number) {
  const std::lock_guard lock(mutex_);
  memberships_.erase(number);
}

}  // namespace hdt::client
