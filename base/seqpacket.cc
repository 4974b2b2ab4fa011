// seqpacket.cc: socket calls behind seqpacket.h. One message is one sendmsg() and one recvmsg();
// descriptors travel in its SCM_RIGHTS control message.
#include "base/seqpacket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace hdt {

namespace {

// Connections that may wait to be accepted. A further process waits in its connect(). The kernel lowers
// the number to net.core.somaxconn.
constexpr int kBacklog = 1'024;

// kInvalidArgument: the path does not fit into a sockaddr_un with its closing zero.
Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return Status(Code::kInvalidArgument, "socket path '" + path + "' must have 1 to " +
                                              std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// `extra` are flags such as SOCK_NONBLOCK.
Result<UniqueFd> make_socket(int extra) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | extra, 0));
  if (!fd.valid()) return Status::from_errno("socket(AF_UNIX)", errno);
  return fd;
}

// The error for a listener that accepts nobody, with the owner of the socket file as a hint.
std::string takes_nobody(const std::string& path, int64_t timeout_ms) {
  struct stat file {};
  const std::string owner =
      ::stat(path.c_str(), &file) == 0 ? " of user " + std::to_string(file.st_uid) : std::string();
  return path + ": the process" + owner + " that listens there has taken no connection for " +
         std::to_string(timeout_ms) + " ms; it is stopped, or has more to do than it can (`ss -xlp src " +
         path + "` names it; kill -CONT lets a stopped process go on)";
}

// Why descriptors were lost. The kernel drops those for which there is no room and does not report the
// reason, so a descriptor is asked for now: if that fails, its errno is the reason. If it works, there
// was room for one but not for all, which is the process's limit.
Status descriptors_refused(int socket) {
  const UniqueFd probe(::fcntl(socket, F_DUPFD_CLOEXEC, 0));
  return Status::from_errno("the descriptors that came with a message cannot be taken",
                            probe.valid() ? EMFILE : errno);
}

}  // namespace

Result<UniqueFd> listen_seqpacket(const std::string& path) {
  auto address = address_of(path);
  if (!address.is_ok()) return address.status();
  if (somebody_listens(path)) {
    return Status(
        Code::kSystem,
        "another daemon has the socket " + path + " already (`ss -xlp src " + path +
            "` names its process, which may be stopped): end that one, or name another node.socket");
  }
  // A stale socket file would make bind() fail. Only a socket is removed, so a wrong path cannot cost a file.
  struct stat info {};
  if (::lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode)) ::unlink(path.c_str());
  auto made = make_socket(SOCK_NONBLOCK);
  if (!made.is_ok()) return made.status();
  UniqueFd fd = made.take();
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0) {
    return Status::from_errno("cannot make the socket " + path, errno);
  }
  // bind() applies the umask, which may keep other users out.
  if (::chmod(path.c_str(), 0666) != 0) return Status::from_errno("chmod of " + path, errno);
  if (::listen(fd.get(), kBacklog) != 0) return Status::from_errno("listen at " + path, errno);
  return fd;
}

Result<UniqueFd> connect_seqpacket(const std::string& path, int64_t timeout_ms) {
  auto address = address_of(path);
  if (!address.is_ok()) return address.status();
  auto made = make_socket(0);
  if (!made.is_ok()) return made.status();
  UniqueFd fd = made.take();
  const Deadline deadline = Deadline::after_ms(std::max<int64_t>(timeout_ms, 1));
  for (;;) {
    // connect() to a full queue waits for as long as a send may take. The time is set anew after a signal.
    HDT_RETURN_IF_ERROR(limit_sends(fd.get(), deadline.remaining_ns() / kNsPerMs + 1));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.value()), sizeof(sockaddr_un)) == 0)
      break;
    if (errno == EINTR && !deadline.expired()) continue;
    if (errno == EAGAIN || errno == EINTR) return Status(Code::kNoDaemon, takes_nobody(path, timeout_ms));
    return Status(Code::kNoDaemon, path + ": " + std::strerror(errno));
  }
  // Sends on the session have no limit unless the caller sets one.
  HDT_RETURN_IF_ERROR(limit_sends(fd.get(), 0));
  return fd;
}

// EAGAIN: the listener's queue is full, so somebody has it open.
bool somebody_listens(const std::string& path) {
  auto address = address_of(path);
  if (!address.is_ok()) return false;
  const auto probe = make_socket(SOCK_NONBLOCK);
  if (!probe.is_ok()) return false;
  return ::connect(probe.value().get(), reinterpret_cast<const sockaddr*>(&address.value()),
                   sizeof(sockaddr_un)) == 0 ||
         errno == EAGAIN;
}

Status limit_sends(int socket, int64_t timeout_ms) {
  const timeval time{timeout_ms / 1000, timeout_ms % 1000 * 1000};
  if (::setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) == 0) return Status::ok();
  return Status::from_errno("SO_SNDTIMEO", errno);
}

// MSG_NOSIGNAL: a closed peer is an error here, not a SIGPIPE.
Status send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> fds) {
  if (bytes.size() > kMaxPacketBytes || fds.size() > kMaxPacketFds) {
    return {Code::kInternal, "a session message is over its limit"};
  }
  // sendmsg() does not change the bytes; the type has no const.
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxPacketFds)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  for (;;) {
    if (::sendmsg(socket, &message, MSG_NOSIGNAL) >= 0) return Status::ok();
    if (errno == EINTR) continue;
    // Also the end of SO_SNDTIMEO's time.
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {Code::kInProgress, "the session's socket is full"};
    if (errno == EPIPE || errno == ECONNRESET)
      return {Code::kDaemonLost, "the other side closed the session"};
    return Status::from_errno("sending on a session", errno);
  }
}

Result<Packet> receive_packet(int socket) {
  Packet packet;
  // Before the descriptors come: if there were no memory for one afterwards, it would stay open for ever.
  packet.fds.reserve(kMaxPacketFds);
  // On the stack and not in the packet, whose vector is only as large as what came: a process that is
  // short of memory can then still receive its daemon's short messages.
  std::array<std::byte, kMaxPacketBytes> bytes;
  iovec part{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * kMaxPacketFds)> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got = -1;
  // A peer that closes without having read everything resets the connection. The kernel reports that
  // once, before the messages that the peer had sent. These say why it closed, so the first ECONNRESET
  // is passed over.
  bool reset = false;
  for (;;) {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    if (got >= 0 || (errno != EINTR && (errno != ECONNRESET || reset))) break;
    reset |= errno == ECONNRESET;
  }
  if (got < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return Status(Code::kInProgress, "nothing to read");
    if (errno == ECONNRESET) return Status(Code::kDaemonLost, "the other side closed the session");
    return Status::from_errno("receiving on a session", errno);
  }
  // Descriptors are taken out first, so that every way out of this function closes them.
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof fd);
      packet.fds.emplace_back(fd);
    }
  }
  // End of the stream. A message is never empty, as every one has a kind.
  if (got == 0) return Status(Code::kDaemonLost, "the other side closed the session");
  // MSG_CTRUNC has two causes: the peer sent too many descriptors, or this process could not take them.
  const bool more_than_allowed = (message.msg_flags & MSG_CTRUNC) != 0 && packet.fds.size() >= kMaxPacketFds;
  if ((message.msg_flags & MSG_TRUNC) != 0 || more_than_allowed) {
    return Status(Code::kInvalidArgument, "a session message is over its limit");
  }
  if ((message.msg_flags & MSG_CTRUNC) != 0) {
    packet.descriptors = descriptors_refused(socket);
    packet.fds.clear();
  }
  packet.bytes.assign(bytes.begin(), bytes.begin() + got);
  return packet;
}

Result<PeerCredentials> peer_credentials(int socket) {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return Status::from_errno("SO_PEERCRED", errno);
  }
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

}  // namespace hdt
