#include "daemon/client_sessions.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/limits.h"
#include "base/log.h"
#include "base/process_watch.h"
#include "base/users.h"

namespace hdt::daemon {

using session::Kind;

namespace {

// A listener that cannot even refuse is left alone for so long.
constexpr int64_t kPauseMs = 100;
// While the daemon is at a limit it says so this often at most.
constexpr int64_t kSayAgainMs = 10'000;

}  // namespace

std::string pid_text(const PeerCredentials& credentials) {
  if (credentials.pid == 0) return "a process of a PID namespace that is not seen from here";
  return "pid " + std::to_string(credentials.pid);
}

ClientSessions::ClientSessions(Options options, SessionHandler& handler)
    : options_(std::move(options)), handler_(handler), next_memory_(std::random_device()()) {}

Status ClientSessions::listen(const std::string& path, int epoll) {
  epoll_ = epoll;
  path_ = path;
  auto made = listen_seqpacket(path);
  if (!made.is_ok()) return made.status();
  listener_ = made.take();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = listener_.get();
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_.get(), &event) != 0)
    return Status::from_errno("epoll_ctl", errno);
  return Status::ok();
}

void ClientSessions::stop_listening() {
  if (!listener_.valid()) return;
  ::shutdown(listener_.get(), SHUT_RDWR);  // a forked child may hold a copy
  listener_.reset();
  ::unlink(path_.c_str());
}

void ClientSessions::accept_all() {
  for (;;) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      const int error = errno;
      if (error == EAGAIN || error == EWOULDBLOCK) return;
      if (error == EINTR || error == ECONNABORTED) continue;
      fd = spare_.accept_instead(listener_.get(), error);
      if (!fd.valid()) return pause(Status::from_errno("accepting sessions", error));
      turn_away(std::move(fd), {Code::kSystem, descriptor_limit_reached()});
      spare_.restore();
      continue;
    }
    const auto credentials = peer_credentials(fd.get());
    if (!credentials.is_ok()) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd.get();
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd.get(), &event) != 0) {
      turn_away(std::move(fd), Status::from_errno("watching a session", errno));
      continue;
    }
    if (std::exchange(at_limit_, false)) HDT_LOG_INFO("sessions are taken again");
    const uint64_t number = next_number_++;
    by_fd_[fd.get()] = number;
    ClientSession& session = sessions_[number];
    session.socket = std::move(fd);
    session.credentials = credentials.value();
  }
}

// Its hello may not have come yet: it reads the answer all the same (libclient/session.cc).
void ClientSessions::turn_away(UniqueFd socket, const Status& why) {
  (void)send_packet(socket.get(), session::encode_text(Kind::kRefused, why.code(), why.message()), {});
  say_limit(why);
}

void ClientSessions::say_limit(const Status& why) {
  at_limit_ = true;
  if (!say_again_.expired() && !say_again_.is_never()) return;
  say_again_ = Deadline::after_ms(kSayAgainMs);
  HDT_LOG_WARN("no more sessions: {}", why.message());
}

void ClientSessions::pause(const Status& why) {
  say_limit(why);
  watch_listener(0);
  go_on_at_ = Deadline::after_ms(kPauseMs);
}

void ClientSessions::on_time() {
  if (!go_on_at_.expired()) return;
  go_on_at_ = Deadline::never();
  spare_.restore();
  if (listener_.valid()) watch_listener(EPOLLIN);
}

void ClientSessions::watch_listener(uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = listener_.get();
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_.get(), &event);
}

void ClientSessions::on_readable(int fd) {
  const auto found = by_fd_.find(fd);
  if (found == by_fd_.end()) return;
  const uint64_t number = found->second;
  receive(number);
  // Asked anew: the event may be of a descriptor that had this number before.
  const ClientSession* client = find(number);
  if (client != nullptr && client->process.get() == fd && has_ended(fd)) process_ended(number);
}

// It has said all that it ever will: what is left in the socket is read. A child that holds the socket is not
// it.
void ClientSessions::process_ended(uint64_t number) {
  receive(number);
  if (const ClientSession* client = find(number)) {
    end(number, "(" + pid_text(client->credentials) + ") ended without leaving the group");
  }
}

void ClientSessions::read_all() {
  for (const uint64_t number : numbers()) receive(number);
}

std::vector<uint64_t> ClientSessions::numbers() const {
  std::vector<uint64_t> all;
  for (const auto& [number, session] : sessions_) all.push_back(number);
  return all;
}

void ClientSessions::receive(uint64_t number) {
  for (;;) {
    const auto found = sessions_.find(number);
    if (found == sessions_.end()) return;
    auto packet = receive_packet(found->second.socket.get());
    if (!packet.is_ok()) {
      if (packet.status().code() == Code::kInProgress) return;
      return end(number, "(" + pid_text(found->second.credentials) + ") ended without leaving the group");
    }
    const Status status = handle(number, packet.value());
    if (!status.is_ok()) return refuse(number, status.code(), status.message());
  }
}

Status ClientSessions::handle(uint64_t number, Packet& packet) {
  const auto kind = session::kind_of(packet.bytes);
  if (!kind.is_ok()) return kind.status();
  if (!sessions_.at(number).greeted) {
    if (kind.value() != Kind::kHello) return {Code::kInvalidArgument, "a session must begin with a hello"};
    return greet(number, packet);
  }
  switch (kind.value()) {
    case Kind::kRendezvous:
      handler_.on_rendezvous(number);
      return Status::ok();
    case Kind::kStatus:
      handler_.on_status(number);
      return Status::ok();
    case Kind::kExplain: {
      const auto request = session::decode_explain(packet.bytes);
      if (!request.is_ok()) return request.status();
      handler_.on_explain(number, request.value());
      return Status::ok();
    }
    case Kind::kAsk: {
      const auto question = session::decode_question(packet.bytes);
      if (!question.is_ok()) return question.status();
      handler_.on_ask(number, question.value());
      return Status::ok();
    }
    case Kind::kJoin: {
      const auto join = session::decode_join(packet.bytes);
      if (!join.is_ok()) return join.status();
      handler_.on_join(number, join.value());
      return Status::ok();
    }
    case Kind::kLeave:
    case Kind::kFail:
    case Kind::kDeadline: {
      const auto notice = session::decode_notice(packet.bytes);
      if (!notice.is_ok()) return notice.status();
      handler_.on_notice(number, kind.value(), notice.value());
      return Status::ok();
    }
    case Kind::kShare:
      return share(number, packet);
    case Kind::kAdopt:
      return adopt(number, packet);
    case Kind::kUnshare:
    case Kind::kOpen: {
      const auto request = session::decode_memory_request(packet.bytes);
      if (!request.is_ok()) return request.status();
      if (kind.value() == Kind::kOpen) {
        handler_.on_open(number, request.value());
      } else {
        if (sessions_.at(number).memories.erase(request.value().memory) == 1) {
          handler_.on_unshared(request.value().memory);
        }
      }
      return Status::ok();
    }
    default:
      return {Code::kInvalidArgument, "a message that only a daemon may send"};
  }
}

// Numbers count from a random one, so that they do not meet those that a predecessor gave: ranks remember what they have
// mapped by its number.
uint32_t ClientSessions::free_memory_number() {
  const auto used = [this](uint32_t number) {
    return number == 0 || std::any_of(sessions_.begin(), sessions_.end(), [number](const auto& session) {
             return session.second.memories.contains(number);
           });
  };
  while (used(next_memory_)) ++next_memory_;
  return next_memory_++;
}

Status ClientSessions::share(uint64_t number, Packet& packet) {
  const auto request = session::decode_memory_request(packet.bytes);
  if (!request.is_ok()) return request.status();
  if (packet.descriptors.is_ok() && packet.fds.size() != 1)
    return {Code::kInvalidArgument, "memory to share needs one descriptor"};
  const uint32_t wanted = request.value().memory;
  session::MemoryAnswer answer;
  answer.request = request.value().request;
  auto& memories = sessions_.at(number).memories;
  auto memory = packet.descriptors.is_ok() ? SharedMemory::map(std::move(packet.fds[0])) : packet.descriptors;
  if (!memory.is_ok()) {
    // A limit of this daemon's: it concerns that memory alone.
    if (memory.status().code() != Code::kSystem || wanted != 0) return memory.status();
    answer.code = Code::kSystem;
    answer.text = memory.status().message();
    send(number, session::encode(answer));
    return Status::ok();
  }
  for (const auto& [other, client] : sessions_) {
    if (wanted == 0 || !client.memories.contains(wanted)) continue;
    return {Code::kInvalidUsage,
            "shared memory " + std::to_string(wanted) + " of this daemon's predecessor has been taken"};
  }
  if (memories.size() >= session::kMaxMemories) {
    answer.code = Code::kSystem;
    answer.text = "a process may share " + std::to_string(session::kMaxMemories) + " allocations";
  } else {
    answer.memory = wanted != 0 ? wanted : free_memory_number();
    const auto shared = std::make_shared<SharedMemory>(memory.take());
    memories.emplace(answer.memory, shared);
    handler_.on_shared(number, answer.memory, shared);
  }
  if (wanted == 0) send(number, session::encode(answer));
  return Status::ok();
}

// A refusal ends the group for that process, not its session.
Status ClientSessions::adopt(uint64_t number, Packet& packet) {
  const auto request = session::decode_adopt(packet.bytes);
  if (!request.is_ok()) return request.status();
  if (packet.descriptors.is_ok() && packet.fds.size() != 1)
    return {Code::kInvalidArgument, "a group to adopt needs one descriptor"};
  const Status adopted = packet.descriptors.is_ok()
                             ? handler_.on_adopt(number, request.value(), std::move(packet.fds[0]))
                             : packet.descriptors;
  if (adopted.is_ok()) return adopted;
  HDT_LOG_WARN("session {} ({}): a group is not adopted: {}", number,
               pid_text(sessions_.at(number).credentials), adopted.message());
  send(number, session::encode(Kind::kNotAdopted, session::GroupNotice{request.value().handle, adopted.code(),
                                                                       -1, adopted.message()}));
  return Status::ok();
}

Status ClientSessions::greet(uint64_t number, const Packet& packet) {
  const auto hello = session::decode_hello(packet.bytes);
  if (!hello.is_ok()) return hello.status();
  ClientSession& client = sessions_.at(number);
  if (!allowed(client.credentials)) {
    return {Code::kInvalidUsage, "user " + std::to_string(client.credentials.uid) +
                                     " is in none of the groups in security.allow_groups"};
  }
  HDT_RETURN_IF_ERROR(watch_process(number, client));
  auto memory = SharedMemory::create("hdt-session-" + std::to_string(number), sizeof(session::SessionPage));
  if (!memory.is_ok()) return memory.status();
  auto link = std::make_shared<SessionLink>();
  link->number = number;
  link->pid = static_cast<uint32_t>(client.credentials.pid);
  link->uid = client.credentials.uid;
  link->memory = memory.take();
  new (link->memory.data()) session::SessionPage{};
  std::vector<int> fds = {link->memory.fd()};
  for (uint32_t engine = 0; engine < options_.engines; ++engine) {
    UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!event.valid()) return Status::from_errno("eventfd", errno);
    fds.push_back(event.get());
    link->eventfds.push_back(std::move(event));
  }
  client.link = std::move(link);
  client.greeted = true;
  handler_.on_opened(number);
  send(number,
       session::encode(session::Welcome{options_.software, options_.node_name, options_.host_pid,
                                        options_.engines, options_.restart_ms}),
       fds);
  return Status::ok();
}

Status ClientSessions::watch_process(uint64_t number, ClientSession& client) {
  auto watch = watch_peer(client.socket.get());
  if (!watch.is_ok()) return watch.status();
  if (!watch.value().valid()) return Status::ok();
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = watch.value().get();
  if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, watch.value().get(), &event) != 0)
    return Status::from_errno("watching a process", errno);
  by_fd_[watch.value().get()] = number;
  client.process = watch.take();
  return Status::ok();
}

bool ClientSessions::allowed(const PeerCredentials& who) const {
  if (options_.allow_groups.empty() || who.uid == 0 || is_this_user(who.uid)) return true;
  std::vector<gid_t> gids(256);
  int count = static_cast<int>(gids.size());
  const passwd* user = ::getpwuid(who.uid);
  if (user == nullptr || ::getgrouplist(user->pw_name, who.gid, gids.data(), &count) < 0) {
    gids = {who.gid};
    count = 1;
  }
  gids.resize(static_cast<size_t>(count));
  return std::any_of(
      options_.allow_groups.begin(), options_.allow_groups.end(), [&](const std::string& name) {
        const group* known = ::getgrnam(name.c_str());
        return known != nullptr && std::find(gids.begin(), gids.end(), known->gr_gid) != gids.end();
      });
}

ClientSession* ClientSessions::find(uint64_t number) {
  const auto found = sessions_.find(number);
  return found == sessions_.end() ? nullptr : &found->second;
}

bool ClientSessions::send(uint64_t number, std::span<const std::byte> bytes, std::span<const int> fds) {
  ClientSession* client = find(number);
  if (client == nullptr) return false;
  const Status sent = send_packet(client->socket.get(), bytes, fds);
  if (sent.is_ok()) return true;
  // A process that does not read its answers is as good as gone. Its socket reports the end on the next read.
  HDT_LOG_WARN("session {} ({}): {}", number, pid_text(client->credentials), sent.message());
  ::shutdown(client->socket.get(), SHUT_RDWR);
  return false;
}

void ClientSessions::refuse(uint64_t number, Code code, const std::string& why) {
  ClientSession* client = find(number);
  if (client == nullptr) return;
  HDT_LOG_WARN("session {} ({}) closed: {}", number, pid_text(client->credentials), why);
  (void)send_packet(client->socket.get(), session::encode_text(Kind::kRefused, code, why), {});
  end(number, "was disconnected by the daemon: " + why);
}

void ClientSessions::refuse_all(Code code, const std::string& why) {
  for (const uint64_t number : numbers()) refuse(number, code, why);
}

void ClientSessions::abandon() {
  stop_listening();
  for (const auto& [number, session] : sessions_) ::shutdown(session.socket.get(), SHUT_RDWR);
}

void ClientSessions::end(uint64_t number, const std::string& how) {
  ClientSession* client = find(number);
  if (client == nullptr) return;
  handler_.on_gone(number, how);
  // Out of epoll by name: where somebody holds a copy, closing does not do it.
  for (const int fd : {client->socket.get(), client->process.get()}) {
    if (fd < 0) continue;
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, fd, nullptr);
    by_fd_.erase(fd);
  }
  sessions_.erase(number);
}

}  // namespace hdt::daemon
