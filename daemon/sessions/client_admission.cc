// client_admission.cc: the part of ClientSessions that admits processes: accepting connections, refusing
// them at limits, and the hello.
#include <grp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/limits.h"
#include "base/log.h"
#include "base/process_watch.h"
#include "daemon/sessions/client_sessions.h"

namespace hdt::daemon {

using ipc::Kind;

namespace {

// How long, in ms, a listener is left alone if not even a refusal was possible.
constexpr int64_t kPauseMs = 100;
// While the daemon is at a limit it logs this at most so often, in ms.
constexpr int64_t kSayAgainMs = 10'000;
// How many connections are accepted in one turn, so that sessions come in between.
constexpr size_t kConnectionsPerTurn = 64;
constexpr size_t kRefusalsPerTurn = 16;
// After so many refusals in one turn the listener is left alone for kRefusedPauseMs, so that a process
// that connects in a loop does not keep the thread busy.
constexpr int64_t kRefusedPauseMs = 10;
// Linux has at most 65536 groups for a process (NGROUPS_MAX).
constexpr size_t kMaxPeerGroups = 65'536;

// The groups of the process that connected, as the kernel knows them. No name of a user is looked up,
// which may block. If the kernel does not report them, only the main group counts.
std::vector<gid_t> groups_of_peer(int socket, gid_t own) {
  std::vector<gid_t> groups(32);
  for (;;) {
    auto bytes = static_cast<socklen_t>(groups.size() * sizeof(gid_t));
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) == 0) {
      groups.resize(bytes / sizeof(gid_t));
      break;
    }
    // ERANGE: the kernel has written how many bytes are needed.
    const size_t needed = bytes / sizeof(gid_t);
    if (errno != ERANGE || needed <= groups.size() || needed > kMaxPeerGroups) {
      groups.clear();
      break;
    }
    groups.resize(needed);
  }
  groups.push_back(own);
  return groups;
}

}  // namespace

ClientSessions::ClientSessions(Options options, UserLimits& limits, SessionHandler& handler)
    : options_(std::move(options)), limits_(limits), handler_(handler) {
  for (const std::string& name : options_.allow_groups) {
    // Looked up once, here, since it may take long.
    if (const group* known = ::getgrnam(name.c_str()); known != nullptr) {  // NOLINT(concurrency-mt-unsafe)
      allowed_.push_back(known->gr_gid);
    } else {
      HDT_LOG_WARN("security.allow_groups: there is no group '{}'", name);
    }
  }
}

// The listener stays in the epoll set until the end; a pause only changes what epoll reports of it.
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

// Processes that come now find no socket and make a daemon of their own, or wait for the next one.
void ClientSessions::stop_listening() {
  if (!listener_.valid()) return;
  ::shutdown(listener_.get(), SHUT_RDWR);  // a forked child may hold a copy
  listener_.reset();
  ::unlink(path_.c_str());
}

// Bounded in connections and in refusals: a process that connects in a loop must not keep sessions from
// being served.
void ClientSessions::accept_some() {
  size_t refused = 0;
  for (size_t i = 0; i < kConnectionsPerTurn; ++i) {
    // Each connection takes one of four ways: none is left; it is refused, since there are no
    // descriptors; it is refused, since its user is at a limit; it becomes a session that waits for its
    // hello.
    if (refused >= kRefusalsPerTurn) return pause(kRefusedPauseMs);
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid()) {
      const int error = errno;
      if (error == EAGAIN || error == EWOULDBLOCK) return;
      if (error == EINTR || error == ECONNABORTED) continue;
      // At the limit of descriptors: accept in the place of the spare one, so that the process gets
      // a reason.
      fd = spare_.accept_instead(listener_.get(), error);
      if (!fd.valid()) {
        say_limit(Status::from_errno("accepting sessions", error));
        return pause(kPauseMs);
      }
      turn_away(std::move(fd), {Code::kSystem, descriptor_limit_reached()});
      spare_.restore();
      ++refused;
      continue;
    }
    // By the kernel, as of the moment of connect(): a process cannot state another user.
    const auto credentials = peer_credentials(fd.get());
    if (!credentials.is_ok()) continue;
    // Counted from the connection on, so that connections without a hello are limited as well.
    auto claim = limits_.claim(credentials.value().uid, UserLimits::What::kSessions);
    if (!claim.is_ok()) {
      (void)send_packet(
          fd.get(), ipc::encode_text(Kind::kRefused, claim.status().code(), claim.status().message()), {});
      if (limits_.may_log(credentials.value().uid))
        HDT_LOG_WARN("a session of {} is refused: {}", pid_text(credentials.value()),
                     claim.status().message());
      ++refused;
      continue;
    }
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd.get();
    // ENOSPC: the user's limit of watches (fs.epoll.max_user_watches) is reached.
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd.get(), &event) != 0) {
      turn_away(std::move(fd), Status::from_errno("watching a session", errno));
      ++refused;
      continue;
    }
    if (std::exchange(at_limit_, false)) HDT_LOG_INFO("sessions are taken again");
    const uint64_t number = next_number_++;
    // First the places that name the session, then the session: an entry that names none is harmless if
    // the next step throws.
    silent_.emplace_back(Deadline::after_ms(options_.hello_ms), number);
    by_fd_[fd.get()] = number;
    ClientSession& session = sessions_[number];
    session.socket = std::move(fd);
    session.credentials = credentials.value();
    session.claim = claim.take();
  }
}

// The process may not have sent its hello yet. It reads the refusal all the same
// (libclient/daemon_client/session.cc).
void ClientSessions::turn_away(UniqueFd socket, const Status& why) {
  (void)send_packet(socket.get(), ipc::encode_text(Kind::kRefused, why.code(), why.message()), {});
  say_limit(why);
}

// A limit of this host concerns all users, so it is logged rarely rather than by user.
void ClientSessions::say_limit(const Status& why) {
  at_limit_ = true;
  if (!say_again_.expired() && !say_again_.is_never()) return;
  say_again_ = Deadline::after_ms(kSayAgainMs);
  HDT_LOG_WARN("no more sessions: {}", why.message());
}

// A level-triggered listener at which nothing can be accepted would otherwise wake the thread without end.
void ClientSessions::pause(int64_t ms) {
  watch_listener(0);
  go_on_at_ = Deadline::after_ms(ms);
}

// EPOLL_CTL_MOD with no events keeps the descriptor in the set without reports.
void ClientSessions::watch_listener(uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = listener_.get();
  ::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_.get(), &event);
}

// 1. Version and user. 2. A pidfd. 3. The page and one eventfd per engine, which the process gets with
//    the Welcome. An error ends the session, whatever is made by then.
Status ClientSessions::greet(uint64_t number, const Packet& packet) {
  const auto hello = ipc::decode_hello(packet.bytes);
  if (!hello.is_ok()) return hello.status();
  ClientSession& client = sessions_.at(number);
  if (!allowed(client)) {
    return {Code::kInvalidUsage, "user " + std::to_string(client.credentials.uid) +
                                     " is in none of the groups in security.allow_groups"};
  }
  // From here on the session ends with its process.
  HDT_RETURN_IF_ERROR(watch_process(number, client));
  auto memory = SharedMemory::create("hdt-session-" + std::to_string(number), sizeof(ipc::WakePage));
  if (!memory.is_ok()) return memory.status();
  auto link = std::make_shared<SessionLink>();
  link->number = number;
  link->pid = static_cast<uint32_t>(client.credentials.pid);
  link->uid = client.credentials.uid;
  link->memory = memory.take();
  // Constructed before the process has the page, so no bit that it sets can be lost.
  new (link->memory.data()) ipc::WakePage{};
  std::vector<int> fds = {link->memory.fd()};
  for (uint32_t engine = 0; engine < options_.engines; ++engine) {
    // Not blocking: an engine reads it whether or not the process has written.
    UniqueFd event(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!event.valid()) return Status::from_errno("eventfd", errno);
    fds.push_back(event.get());
    link->eventfds.push_back(std::move(event));
  }
  client.link = std::move(link);
  client.greeted = true;
  // Before the Welcome: engines watch the page before the process can ring.
  handler_.on_opened(number);
  send(number,
       ipc::encode(ipc::Welcome{options_.software, options_.node_name, options_.host_pid, options_.engines,
                                options_.restart_ms}),
       fds);
  return Status::ok();
}

// The pidfd ends with the process itself, while the socket stays open as long as a forked child holds a
// copy of it.
Status ClientSessions::watch_process(uint64_t number, ClientSession& client) {
  auto watch = watch_peer(client.socket.get());
  if (!watch.is_ok()) return watch.status();
  // The system has no pidfds, or the process is not visible from here: then only its socket shows
  // its end.
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

// Root and the daemon's own user are always admitted.
bool ClientSessions::allowed(const ClientSession& client) const {
  if (options_.allow_groups.empty() || limits_.is_exempt(client.credentials.uid)) return true;
  const auto groups = groups_of_peer(client.socket.get(), client.credentials.gid);
  return std::any_of(groups.begin(), groups.end(), [this](gid_t group) {
    return std::find(allowed_.begin(), allowed_.end(), group) != allowed_.end();
  });
}

}  // namespace hdt::daemon
