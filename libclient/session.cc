#include "libclient/session.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>

#include "base/log.h"

namespace hdt::client {

using session::Kind;

namespace {

// Answers are filed by request number; those without one by the kind asked for, above all request numbers.
constexpr uint64_t kByKind = uint64_t{1} << 32;
constexpr int64_t kAnswerMs = 10'000;
// The daemon itself keeps the deadline of a join; this much later it is considered stuck.
constexpr int64_t kJoinGraceMs = 10'000;
constexpr timeval kGreetingTimeout{10, 0};

// Of an answer that comes as a memfd.
Result<std::string> text_of(Packet& packet) {
  if (packet.fds.size() != 1) return Status(Code::kInternal, "the daemon's answer lacks its text");
  auto memory = SharedMemory::map(std::move(packet.fds[0]));
  if (!memory.is_ok()) return memory.status();
  const auto* text = reinterpret_cast<const char*>(memory.value().data());
  return std::string(text, ::strnlen(text, memory.value().size()));
}

}  // namespace

Result<std::shared_ptr<Session>> Session::open(const std::string& socket) {
  auto connected = connect_seqpacket(socket);
  if (!connected.is_ok()) return connected.status();
  std::shared_ptr<Session> session(new Session());
  session->path_ = socket;
  session->socket_ = connected.take();
  HDT_RETURN_IF_ERROR(session->greet());
  session->reader_ = std::thread([raw = session.get()] {
    set_thread_name("hdt-session");
    raw->read();
  });
  return session;
}

Status Session::greet() {
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &kGreetingTimeout, sizeof kGreetingTimeout);
  HDT_RETURN_IF_ERROR(send_packet(socket_.get(), session::encode(session::Hello{"libhdt 0.1.0"}), {}));
  auto packet = receive_packet(socket_.get());
  if (!packet.is_ok()) {
    if (packet.status().code() == Code::kInProgress)
      return {Code::kNoDaemon, "the daemon at " + path_ + " is stuck"};
    return packet.status();
  }
  const auto kind = session::kind_of(packet.value().bytes);
  if (kind.is_ok() && kind.value() == Kind::kRefused) {
    const auto text = session::decode_text(packet.value().bytes);
    if (text.is_ok()) return {text.value().code, "the daemon at " + path_ + " refused: " + text.value().text};
  }
  auto welcome = session::decode_welcome(packet.value().bytes);
  if (!welcome.is_ok()) return welcome.status();
  welcome_ = welcome.take();
  auto& fds = packet.value().fds;
  if (fds.size() != 1 + welcome_.engines) return {Code::kInternal, "the daemon's welcome lacks descriptors"};
  auto page = SharedMemory::map(std::move(fds[0]));
  if (!page.is_ok()) return page.status();
  if (page.value().size() < sizeof(session::SessionPage))
    return {Code::kInternal, "the session's page is too small"};
  page_ = page.take();
  for (uint32_t i = 0; i < welcome_.engines; ++i) eventfds_.push_back(std::move(fds[1 + i]));
  constexpr timeval kForever{0, 0};
  ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &kForever, sizeof kForever);
  return Status::ok();
}

Session::~Session() {
  ::shutdown(socket_.get(), SHUT_RDWR);
  if (!reader_.joinable()) return;
  // The last communicator may be released from a callback on the reader's own thread.
  if (reader_.get_id() == std::this_thread::get_id()) {
    reader_.detach();
  } else {
    reader_.join();
  }
}

void Session::read() {
  for (;;) {
    auto packet = receive_packet(socket_.get());
    if (!packet.is_ok()) return mark_lost({Code::kDaemonLost, "the daemon at " + path_ + " went away"});
    const auto kind = session::kind_of(packet.value().bytes);
    if (kind.is_ok() && kind.value() == Kind::kRefused) {
      const auto text = session::decode_text(packet.value().bytes);
      return mark_lost(text.is_ok()
                           ? Status(text.value().code, "the daemon at " + path_ + ": " + text.value().text)
                           : text.status());
    }
    on_packet(packet.take());
  }
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
  }
  const std::lock_guard lock(mutex_);
  answers_[number] = std::move(packet);
  answered_.notify_all();
}

void Session::mark_lost(const Status& why) {
  std::map<uint64_t, std::function<void(const Status&)>> watchers;
  {
    const std::lock_guard lock(mutex_);
    lost_why_ = why;
    lost_.store(true, std::memory_order_release);
    watchers.swap(watchers_);
    answered_.notify_all();
  }
  for (auto& [number, watcher] : watchers) watcher(why);
}

Result<Packet> Session::ask(uint64_t number, std::span<const std::byte> bytes, const Deadline& deadline,
                            std::span<const int> fds) {
  {
    const std::lock_guard lock(send_mutex_);
    if (lost()) return lost_why_;
    HDT_RETURN_IF_ERROR(send_packet(socket_.get(), bytes, fds));
  }
  std::unique_lock lock(mutex_);
  for (;;) {
    if (auto found = answers_.find(number); found != answers_.end()) {
      Packet packet = std::move(found->second);
      answers_.erase(found);
      return packet;
    }
    if (lost()) return lost_why_;
    if (deadline.expired()) return Status(Code::kTimeout, "the daemon at " + path_ + " does not answer");
    answered_.wait_for(lock, std::chrono::nanoseconds(std::min(deadline.remaining_ns(), kNsPerSecond)));
  }
}

Result<std::string> Session::rendezvous_address() {
  const std::lock_guard lock(question_mutex_);
  auto packet = ask(kByKind + static_cast<uint64_t>(Kind::kRendezvousAt),
                    session::encode_empty(Kind::kRendezvous), Deadline::after_ms(kAnswerMs));
  if (!packet.is_ok()) return packet.status();
  auto text = session::decode_text(packet.value().bytes);
  if (!text.is_ok()) return text.status();
  return text.value().text;
}

Result<std::string> Session::status_json() {
  const std::lock_guard lock(question_mutex_);
  auto packet = ask(kByKind + static_cast<uint64_t>(Kind::kStatusIs), session::encode_empty(Kind::kStatus),
                    Deadline::after_ms(kAnswerMs));
  if (!packet.is_ok()) return packet.status();
  return text_of(packet.value());
}

// Questions whose answer is a text with JSON behind it, or a refusal.
Result<std::string> Session::json_answer(Kind kind, std::span<const std::byte> question) {
  const std::lock_guard lock(question_mutex_);
  auto packet = ask(kByKind + static_cast<uint64_t>(kind), question, Deadline::after_ms(kAnswerMs));
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

Result<JoinedGroup> Session::join(session::JoinRequest request) {
  {
    const std::lock_guard lock(mutex_);
    request.request = next_request_++;
  }
  auto packet =
      ask(request.request, session::encode(request), Deadline::after_ms(request.timeout_ms + kJoinGraceMs));
  if (!packet.is_ok()) return packet.status();
  const auto joined = session::decode_joined(packet.value().bytes);
  if (!joined.is_ok()) return joined.status();
  if (joined.value().code != Code::kSuccess) return Status(joined.value().code, joined.value().text);
  if (packet.value().fds.size() != 1 || joined.value().engine >= eventfds_.size()) {
    return Status(Code::kInternal, "the daemon's answer to a join makes no sense");
  }
  auto memory = SharedMemory::map(std::move(packet.value().fds[0]));
  if (!memory.is_ok()) return memory.status();
  return JoinedGroup{memory.take(), joined.value().handle, joined.value().engine, joined.value().local_index};
}

Result<Packet> Session::ask_memory(Kind kind, session::MemoryRequest request, std::span<const int> fds) {
  {
    const std::lock_guard lock(mutex_);
    request.request = next_request_++;
  }
  auto packet = ask(request.request, session::encode(kind, request), Deadline::after_ms(kAnswerMs), fds);
  if (!packet.is_ok()) return packet.status();
  const auto answer = session::decode_memory_answer(packet.value().bytes);
  if (!answer.is_ok()) return answer.status();
  if (answer.value().code != Code::kSuccess) return Status(answer.value().code, answer.value().text);
  return packet;
}

Result<uint32_t> Session::share(const SharedMemory& memory) {
  const std::array<int, 1> fds = {memory.fd()};
  auto packet = ask_memory(Kind::kShare, {}, fds);
  if (!packet.is_ok()) return packet.status();
  return session::decode_memory_answer(packet.value().bytes).value().memory;
}

void Session::unshare(uint32_t memory) {
  const std::lock_guard lock(send_mutex_);
  (void)send_packet(socket_.get(), session::encode(Kind::kUnshare, session::MemoryRequest{0, 0, memory}), {});
}

Result<SharedMemory> Session::open_memory(uint32_t handle, uint32_t memory) {
  auto packet = ask_memory(Kind::kOpen, {0, handle, memory}, {});
  if (!packet.is_ok()) return packet.status();
  if (packet.value().fds.size() != 1) return Status(Code::kInternal, "the daemon's answer lacks the memory");
  return SharedMemory::map(std::move(packet.value().fds[0]));
}

Status Session::notify(Kind kind, const session::GroupNotice& notice) {
  const std::lock_guard lock(send_mutex_);
  return send_packet(socket_.get(), session::encode(kind, notice), {});
}

void Session::ring(uint32_t engine, uint32_t handle) {
  session::EngineBell& bell = reinterpret_cast<session::SessionPage*>(page_.data())->engines[engine];
  const uint32_t bit = handle % (session::kAttentionWords * 64);
  // Sequentially consistent with the engine's "set asleep, look again": one of the two sees the other.
  bell.attention[bit / 64].fetch_or(uint64_t{1} << bit % 64, std::memory_order_seq_cst);
  if (bell.asleep.load(std::memory_order_seq_cst) != 0) ::eventfd_write(eventfds_[engine].get(), 1);
}

uint64_t Session::watch(std::function<void(const Status&)> on_lost) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = next_watcher_++;
  watchers_[number] = std::move(on_lost);
  return number;
}

void Session::unwatch(uint64_t number) {
  const std::lock_guard lock(mutex_);
  watchers_.erase(number);
}

}  // namespace hdt::client
