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

using session::Kind;

namespace {

// Answers are filed by request number; those without one by the kind asked for, above all request numbers.
constexpr uint64_t kByKind = uint64_t{1} << 32;
constexpr int64_t kAnswerMs = 10'000;
// The daemon itself keeps the deadline of a join; this much later it is considered stuck.
constexpr int64_t kJoinGraceMs = 10'000;
// A socket that a child of a host that was killed holds open: nobody answers, and the next one is about to
// take its place.
constexpr int64_t kNextGreetingMs = 1'000;
// How often a session without a daemon looks for one.
constexpr int64_t kLookMs = 10;

// Of an answer that comes as a memfd.
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
    ::shutdown(wire().socket.get(), SHUT_RDWR);
    changed_.notify_all();
  }
  if (!reader_.joinable()) return;
  // The last communicator may be released from a callback on the reader's own thread.
  if (reader_.get_id() == std::this_thread::get_id()) {
    *alive_ = false;
    reader_.detach();
  } else {
    reader_.join();
  }
}

void Session::read() {
  const auto alive = alive_;
  try {
    read_on();
  } catch (const std::bad_alloc&) {
    if (*alive) mark_lost({Code::kSystem, "process " + own_process() + " has no memory to hear its daemon"});
  }
}

void Session::read_on() {
  const auto alive = alive_;
  for (;;) {
    bool final = false;
    const Status ended = hear(final);
    if (!*alive) return;
    if (final) return mark_lost(ended);
    const Status found = find_successor();
    if (!*alive) return;
    if (!found.is_ok()) return mark_lost(found);
  }
}

Status Session::hear(bool& final) {
  const auto alive = alive_;
  for (;;) {
    auto packet = receive_packet(wire().socket.get());
    if (!packet.is_ok()) return {Code::kDaemonLost, "the daemon at " + path_ + " went away"};
    const auto kind = session::kind_of(packet.value().bytes);
    if (kind.is_ok() && kind.value() == Kind::kRefused) {
      final = true;
      const auto text = session::decode_text(packet.value().bytes);
      return text.is_ok() ? Status(text.value().code, "the daemon at " + path_ + ": " + text.value().text)
                          : text.status();
    }
    on_packet(packet.take());
    if (!*alive) return {};
  }
}

Status Session::find_successor() {
  const int64_t wait_ms = wire().welcome.restart_ms;
  const Status last(Code::kDaemonLost, "the daemon at " + path_ + " went away");
  std::string since = " and was not started again within " + std::to_string(wait_ms) + " ms";
  const bool embedded = wire().welcome.host_pid != 0;
  std::vector<std::function<void()>> away;
  {
    const std::lock_guard lock(mutex_);
    if (closing_) return last;
    connected_ = false;
    answers_.clear();
    for (const auto& [number, membership] : memberships_) away.push_back(membership.on_away);
    changed_.notify_all();
  }
  for (const auto& tell : away) {
    if (tell) tell();
  }
  if (wait_ms == 0) return last;
  if (embedded && !await_need()) return last;
  const Deadline deadline = Deadline::after_ms(wait_ms);
  HDT_LOG_AT(embedded ? LogLevel::kInfo : LogLevel::kWarn,
             "{}; waiting up to {} ms for it to be started again", last.message(), wait_ms);
  for (;;) {
    if (become_host_) become_host_();
    const int64_t left_ms = std::max<int64_t>(deadline.remaining_ns() / kNsPerMs, kNextGreetingMs);
    auto wire = greet(path_, std::min(left_ms, embedded ? kNextGreetingMs : kGreetingMs));
    // Who refuses has understood; who is not there, or dies again at once, may come yet.
    const Code code = wire.is_ok() ? Code::kSuccess : wire.status().code();
    if (wire.is_ok()) {
      const Status handed = hand_over(*wire.value());
      if (handed.is_ok()) {
        const std::lock_guard sending(send_mutex_);
        const std::lock_guard lock(mutex_);
        if (closing_) return last;
        wire_.store(wire.value().get(), std::memory_order_seq_cst);
        wires_.push_back(wire.take());
        for (const auto& notice : std::exchange(unsent_, {})) (void)send(this->wire(), notice);
        connected_ = true;
        // Who was in between has rung at the daemon that is gone.
        for (const auto& [number, membership] : memberships_)
          ring(membership.joined->engine, membership.joined->handle);
        changed_.notify_all();
        HDT_LOG_INFO("the daemon at {} is back", path_);
        return Status::ok();
      }
    } else if (code == Code::kSystem) {  // this process or the daemon is at a limit, perhaps not for long
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

// In the order in which it is needed: groups may use what is shared. Nobody else sends meanwhile: nobody
// knows the wire.
Status Session::hand_over(Wire& wire) {
  const std::lock_guard lock(mutex_);
  ++life_;
  for (const auto& [number, shared] : shared_) {
    const std::array<int, 1> fds = {shared.fd};
    HDT_RETURN_IF_ERROR(
        send_packet(wire.socket.get(),
                    session::encode(Kind::kShare, session::MemoryRequest{0, shared.handle, number}), fds));
  }
  for (const auto& [number, membership] : memberships_) {
    JoinedGroup& joined = *membership.joined;
    joined.life = life_;
    const std::array<int, 1> fds = {joined.memory.fd()};
    HDT_RETURN_IF_ERROR(send_packet(
        wire.socket.get(),
        session::encode(session::AdoptRequest{joined.handle, joined.engine, joined.local_index}), fds));
    if (const auto failure = told_.find(joined.handle); failure != told_.end()) {
      HDT_RETURN_IF_ERROR(send_packet(wire.socket.get(), failure->second, {}));
    }
  }
  return Status::ok();
}

void Session::on_packet(Packet packet) {
  const auto kind = session::kind_of(packet.bytes);
  if (!kind.is_ok()) return;
  uint64_t number = kByKind + static_cast<uint64_t>(kind.value());
  if (kind.value() == Kind::kJoined) {
    const auto joined = session::decode_joined(packet.bytes);
    if (!joined.is_ok()) return;
    number = joined.value().request;
  } else if (kind.value() == Kind::kMemory) {
    const auto answer = session::decode_memory_answer(packet.bytes);
    if (!answer.is_ok()) return;
    number = answer.value().request;
  } else if (kind.value() == Kind::kNotAdopted) {
    const auto notice = session::decode_notice(packet.bytes);
    if (notice.is_ok()) on_not_adopted(notice.value());
    return;
  }
  const std::lock_guard lock(mutex_);
  answers_[number] = std::move(packet);
  changed_.notify_all();
}

void Session::on_not_adopted(const session::GroupNotice& notice) {
  std::vector<Membership> refused;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(memberships_, [&](const auto& entry) {
      if (entry.second.joined->handle != notice.handle) return false;
      refused.push_back(entry.second);
      return true;
    });
  }
  for (const Membership& membership : refused) {
    membership.on_lost(
        {notice.code,
         "the daemon at " + path_ + " was started again and does not take the group over: " + notice.text});
  }
}

void Session::mark_lost(const Status& why) {
  std::map<uint64_t, Membership> memberships;
  {
    const std::lock_guard lock(mutex_);
    lost_why_ = why;
    lost_.store(true, std::memory_order_release);
    memberships.swap(memberships_);
    changed_.notify_all();
  }
  for (auto& [number, membership] : memberships) membership.on_lost(why);
}

Result<Packet> Session::ask(uint64_t number, std::span<const std::byte> bytes, int64_t answer_ms,
                            std::span<const int> fds, uint64_t* only_in_life) {
  std::unique_lock lock(mutex_);
  const Counted asking(asking_);
  changed_.notify_all();
  for (;;) {
    // The reader gives up waiting for a daemon in time.
    changed_.wait(lock, [this] { return connected_ || lost(); });
    if (lost()) return lost_why_;
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
    while (connected_ && life_ == life && !lost()) {
      if (auto found = answers_.find(number); found != answers_.end()) {
        Packet packet = std::move(found->second);
        answers_.erase(found);
        return packet;
      }
      if (deadline.expired()) return Status(Code::kTimeout, "the daemon at " + path_ + " does not answer");
      changed_.wait_for(lock, std::chrono::nanoseconds(std::min(deadline.remaining_ns(), kNsPerSecond)));
    }
    if (lost()) return lost_why_;
    if (only_in_life != nullptr)
      return Status(Code::kDaemonLost, "the daemon at " + path_ + " went away before the group was made");
  }
}

Result<std::string> Session::rendezvous_address() {
  const std::lock_guard lock(question_mutex_);
  auto packet = ask(kByKind + static_cast<uint64_t>(Kind::kRendezvousAt),
                    session::encode_empty(Kind::kRendezvous), kAnswerMs);
  if (!packet.is_ok()) return packet.status();
  auto text = session::decode_text(packet.value().bytes);
  if (!text.is_ok()) return text.status();
  return text.value().text;
}

Result<std::string> Session::status_json() {
  const std::lock_guard lock(question_mutex_);
  auto packet =
      ask(kByKind + static_cast<uint64_t>(Kind::kStatusIs), session::encode_empty(Kind::kStatus), kAnswerMs);
  if (!packet.is_ok()) return packet.status();
  return text_of(packet.value());
}

// Questions whose answer is a text with JSON behind it, or a refusal.
Result<std::string> Session::json_answer(Kind kind, std::span<const std::byte> question) {
  const std::lock_guard lock(question_mutex_);
  auto packet = ask(kByKind + static_cast<uint64_t>(kind), question, kAnswerMs);
  if (!packet.is_ok()) return packet.status();
  const auto answer = session::decode_text(packet.value().bytes);
  if (!answer.is_ok()) return answer.status();
  if (answer.value().code != Code::kSuccess) return Status(answer.value().code, answer.value().text);
  return text_of(packet.value());
}

Result<std::string> Session::explain_json(const session::ExplainRequest& request) {
  return json_answer(Kind::kExplanationIs, session::encode(request));
}

Result<std::string> Session::ask_json(const session::Question& question) {
  return json_answer(Kind::kAnswerIs, session::encode(question));
}

Result<JoinedGroup> Session::join_once(const session::JoinRequest& request, uint64_t& life) {
  auto packet = ask(request.request, session::encode(request), request.timeout_ms + kJoinGraceMs, {}, &life);
  if (!packet.is_ok()) return packet.status();
  const auto joined = session::decode_joined(packet.value().bytes);
  if (!joined.is_ok()) return joined.status();
  if (joined.value().code != Code::kSuccess) return Status(joined.value().code, joined.value().text);
  const auto refuse = [&](const Status& why) {
    return give_up_seat(joined.value().handle, static_cast<int32_t>(request.rank), why);
  };
  if (!packet.value().descriptors.is_ok()) return refuse(packet.value().descriptors);
  if (packet.value().fds.size() != 1 || joined.value().engine >= wire().eventfds.size()) {
    return refuse({Code::kInternal, "the daemon's answer to a join makes no sense"});
  }
  auto memory = SharedMemory::map(std::move(packet.value().fds[0]));
  if (!memory.is_ok()) return refuse(memory.status());
  return JoinedGroup{memory.take(), joined.value().handle, joined.value().engine, joined.value().local_index,
                     life,          joined.value().secret};
}

// The daemon tells the others, who wait for this rank, and forgets the seat.
Status Session::give_up_seat(uint32_t handle, int32_t rank, const Status& why) {
  const Status told(
      why.code(), "rank " + std::to_string(rank) + " could not take its seat in the group: " + why.message());
  (void)notify(Kind::kFail, {handle, told.code(), rank, told.message()});
  (void)notify(Kind::kLeave, {handle, Code::kSuccess, -1, ""});
  const std::lock_guard lock(mutex_);
  told_.erase(handle);  // the daemon gives the handle to another group
  return told;
}

Result<Packet> Session::ask_memory(Kind kind, session::MemoryRequest request, std::span<const int> fds) {
  {
    const std::lock_guard lock(mutex_);
    request.request = next_request_++;
  }
  auto packet = ask(request.request, session::encode(kind, request), kAnswerMs, fds);
  if (!packet.is_ok()) return packet.status();
  const auto answer = session::decode_memory_answer(packet.value().bytes);
  if (!answer.is_ok()) return answer.status();
  if (answer.value().code != Code::kSuccess) return Status(answer.value().code, answer.value().text);
  return packet;
}

Result<uint64_t> Session::share(uint32_t handle, const SharedMemory& memory) {
  const std::array<int, 1> fds = {memory.fd()};
  auto packet = ask_memory(Kind::kShare, {0, handle, 0}, fds);
  if (!packet.is_ok()) return packet.status();
  const uint64_t number = session::decode_memory_answer(packet.value().bytes).value().memory;
  const std::lock_guard lock(mutex_);
  shared_[number] = {handle, memory.fd()};
  return number;
}

void Session::forget_shared(uint32_t handle) {
  const std::lock_guard lock(mutex_);
  std::erase_if(shared_, [handle](const auto& entry) { return entry.second.handle == handle; });
}

void Session::unshare(uint64_t memory) {
  const std::lock_guard sending(send_mutex_);
  {
    const std::lock_guard lock(mutex_);
    shared_.erase(memory);
  }
  (void)send_notice(session::encode(Kind::kUnshare, session::MemoryRequest{0, 0, memory}));
}

Result<SharedMemory> Session::open_memory(uint32_t handle, uint64_t memory) {
  auto packet = ask_memory(Kind::kOpen, {0, handle, memory}, {});
  if (!packet.is_ok()) return packet.status();
  HDT_RETURN_IF_ERROR(packet.value().descriptors);
  if (packet.value().fds.size() != 1) return Status(Code::kInternal, "the daemon's answer lacks the memory");
  auto mapped = SharedMemory::map(std::move(packet.value().fds[0]));
  if (mapped.is_ok()) mapped.value().close_fd();
  return mapped;
}

Status Session::notify(Kind kind, const session::GroupNotice& notice) {
  const std::lock_guard sending(send_mutex_);
  const auto bytes = session::encode(kind, notice);
  if (kind == Kind::kFail) {
    const std::lock_guard lock(mutex_);
    told_[notice.handle] = bytes;
  }
  return send_notice(bytes);
}

// A daemon that reads nothing for so long is as good as gone: the reader sees the end, and looks for another
// one.
Status Session::send(const Wire& to, std::span<const std::byte> bytes, std::span<const int> fds) {
  const Status sent = send_packet(to.socket.get(), bytes, fds);
  if (sent.code() != Code::kInProgress) return sent;
  HDT_LOG_WARN("the daemon at {} has read nothing for {} ms: the session is given up", path_, kSendMs);
  ::shutdown(to.socket.get(), SHUT_RDWR);
  return {Code::kDaemonLost, "the daemon at " + path_ + " reads nothing"};
}

// send_mutex_ is held. Kept for the successor while there is no daemon.
Status Session::send_notice(std::span<const std::byte> bytes) {
  bool connected = false;
  {
    const std::lock_guard lock(mutex_);
    if (lost()) return lost_why_;
    connected = connected_;
  }
  const Status sent = connected ? send(wire(), bytes) : Status(Code::kDaemonLost, "");
  if (sent.code() != Code::kDaemonLost || wire().welcome.restart_ms == 0) return sent;
  const std::lock_guard lock(mutex_);
  unsent_.emplace_back(bytes.begin(), bytes.end());
  return Status::ok();
}

// If another daemon comes meanwhile, either its coming is seen here, or what this ring is about is seen by
// it.
void Session::ring(uint32_t engine, uint32_t handle) {
  for (const Wire* rung = nullptr; rung != wire_.load(std::memory_order_seq_cst);) {
    rung = wire_.load(std::memory_order_seq_cst);
    ring_at(*rung, engine, handle);
  }
}

void Session::ring_at(const Wire& daemon, uint32_t engine, uint32_t handle) {
  if (engine >= daemon.eventfds.size()) return;
  session::EngineBell& bell = reinterpret_cast<session::SessionPage*>(daemon.page.data())->engines[engine];
  const uint32_t bit = handle % (session::kAttentionWords * 64);
  // Sequentially consistent with the engine's "set asleep, look again": one of the two sees the other.
  bell.attention[bit / 64].fetch_or(uint64_t{1} << bit % 64, std::memory_order_seq_cst);
  if (bell.asleep.load(std::memory_order_seq_cst) != 0) ::eventfd_write(daemon.eventfds[engine].get(), 1);
}

void Session::unwatch(uint64_t number) {
  const std::lock_guard lock(mutex_);
  memberships_.erase(number);
}

}  // namespace hdt::client
