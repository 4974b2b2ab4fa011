// process_watch.cc: pidfds of the processes behind sockets, by SO_PEERPIDFD where the kernel has it,
// else by pidfd_open(). Only a lack of descriptors is an error: everything else that the kernel refuses
// means that the process cannot be watched, and the caller then goes by the socket alone.
#include "base/process_watch.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/seqpacket.h"

namespace hdt {

namespace {

#ifdef SO_PEERPIDFD
constexpr int kPeerPidfd = SO_PEERPIDFD;
#else
constexpr int kPeerPidfd = 77;  // of Linux 6.5, which the headers may not know yet
#endif

Status ended() { return {Code::kRankLost, "the process that connected has ended"}; }

bool out_of_descriptors(int error) { return error == EMFILE || error == ENFILE || error == ENOMEM; }

}  // namespace

Result<UniqueFd> watch_peer(int socket) {
  int fd = -1;
  socklen_t length = sizeof fd;
  if (::getsockopt(socket, SOL_SOCKET, kPeerPidfd, &fd, &length) == 0) {
    UniqueFd watch(fd);
    // A zombie still has a pidfd.
    if (has_ended(watch.get())) return ended();
    return watch;
  }
  if (errno == ESRCH) return ended();
  if (out_of_descriptors(errno)) return Status::from_errno("watching a process (one descriptor each)", errno);
  return watch_peer_by_number(socket);
}

Result<UniqueFd> watch_peer_by_number(int socket) {
  const auto peer = peer_credentials(socket);
  if (!peer.is_ok()) return peer.status();
  // 0: the process is not visible from this PID namespace.
  if (peer.value().pid <= 0) return UniqueFd();
  // By system call number, because the header of glibc 2.36 declares pidfd_open without C linkage.
  UniqueFd watch(static_cast<int>(::syscall(SYS_pidfd_open, peer.value().pid, 0)));
  if (watch.valid()) {
    if (has_ended(watch.get())) return ended();
    return watch;
  }
  if (errno == ESRCH) return ended();
  if (out_of_descriptors(errno)) return Status::from_errno("watching a process (one descriptor each)", errno);
  return UniqueFd();
}

bool has_ended(int pidfd) {
  pollfd look{pidfd, POLLIN, 0};
  return ::poll(&look, 1, 0) == 1 && (look.revents & POLLIN) != 0;
}

}  // namespace hdt
