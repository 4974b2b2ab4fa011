// session_greeting.cc: how a session begins, and how it goes on with another daemon: connecting, and the
// first message of each side. The greeting runs on the caller's thread or the reader's, on a socket that
// nobody else knows yet, with a time limit for each step.
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>

#include "base/clock.h"
#include "base/seqpacket.h"
#include "base/start_thread.h"
#include "libclient/daemon_client/session.h"

namespace hdt::client {

using ipc::Kind;

namespace {

// The message for a daemon that listens and does not answer. The kernel knows who listened, so the
// message can name the process, and what lets it go on if it was stopped.
std::string stuck(int socket, const std::string& path, int64_t timeout_ms) {
  const auto who = peer_credentials(socket);
  const bool known = who.is_ok() && who.value().pid != 0;
  return "the daemon at " + path +
         (known ? " (pid " + std::to_string(who.value().pid) + " of user " + std::to_string(who.value().uid) +
                      ")"
                : std::string()) +
         " is stuck: it has not answered for " + std::to_string(timeout_ms) + " ms" +
         (known ? "; if it is stopped, kill -CONT " + std::to_string(who.value().pid) + " lets it go on"
                : "");
}

}  // namespace

Result<std::shared_ptr<Session>> Session::open(const std::string& socket,
                                               const std::function<std::function<void()>()>& become_host,
                                               int64_t timeout_ms) {
  auto wire = greet(socket, std::clamp<int64_t>(timeout_ms, 1, kGreetingMs));
  if (!wire.is_ok()) return wire.status();
  std::shared_ptr<Session> session(new Session());
  // Only an embedded daemon has a place that this process could take.
  if (become_host && wire.value()->welcome.host_pid != 0) session->become_host_ = become_host();
  session->path_ = socket;
  session->wire_ = wire.value().get();
  session->wires_.push_back(wire.take());
  // A plain pointer: the destructor waits for the thread, or the thread looks at alive_.
  auto reader = start_thread("hdt-session", [raw = session.get()] { raw->read(); });
  if (!reader.is_ok()) return reader.status();
  session->reader_ = reader.take();
  return session;
}

Result<std::unique_ptr<Session::Wire>> Session::greet(const std::string& path, int64_t timeout_ms) {
  const Deadline deadline = Deadline::after_ms(timeout_ms);
  auto connected = connect_seqpacket(path, timeout_ms);
  if (!connected.is_ok()) return connected.status();
  auto wire = std::make_unique<Wire>();
  wire->socket = connected.take();
  const int socket = wire->socket.get();
  // A daemon that reads nothing holds nobody up for ever.
  HDT_RETURN_IF_ERROR(limit_sends(socket, kSendMs));
  // The answer has the rest of the time; at least 1 ms, as 0 would mean no limit.
  const int64_t left_ms = deadline.remaining_ns() / kNsPerMs + 1;
  const timeval answer_time{left_ms / 1000, left_ms % 1000 * 1000};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &answer_time, sizeof answer_time);
  // A daemon that takes no session may have sent its reason before it heard anything, and closed. So a
  // failed send is no reason not to look for an answer.
  const Status said = send_packet(socket, ipc::encode(ipc::Hello{"libhdt 0.1.0"}), {});
  if (!said.is_ok() && said.code() != Code::kDaemonLost) return said;
  auto packet = receive_packet(socket);
  if (!packet.is_ok()) {
    // The receive has timed out.
    if (packet.status().code() == Code::kInProgress)
      return Status(Code::kNoDaemon, stuck(socket, path, timeout_ms));
    return packet.status();
  }
  const auto kind = ipc::kind_of(packet.value().bytes);
  if (kind.is_ok() && kind.value() == Kind::kRefused) {
    const auto text = ipc::decode_text(packet.value().bytes);
    if (text.is_ok())
      return Status(text.value().code, "the daemon at " + path + " refused: " + text.value().text);
  }
  // From here on a message that makes no sense is an error of its own: kVersion for another protocol.
  auto welcome = ipc::decode_welcome(packet.value().bytes);
  if (!welcome.is_ok()) return welcome.status();
  wire->welcome = welcome.take();
  HDT_RETURN_IF_ERROR(packet.value().descriptors);
  auto& fds = packet.value().fds;
  // The wake page, and one eventfd for each engine.
  if (fds.size() != 1 + wire->welcome.engines)
    return Status(Code::kInternal, "the daemon's welcome lacks descriptors");
  auto page = SharedMemory::map(std::move(fds[0]));
  if (!page.is_ok()) return page.status();
  if (page.value().size() < sizeof(ipc::WakePage))
    return Status(Code::kInternal, "the session's page is too small");
  wire->page = page.take();
  for (uint32_t i = 0; i < wire->welcome.engines; ++i) wire->eventfds.push_back(std::move(fds[1 + i]));
  // The reader thread waits without a limit.
  constexpr timeval kForever{0, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &kForever, sizeof kForever);
  return wire;
}

}  // namespace hdt::client
