// seqpacket.h: messages with file descriptors over AF_UNIX SOCK_SEQPACKET sockets. A process and its node's
// daemon talk this way. The kernel keeps the borders of messages and delivers them in order and whole.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

// Limits of one message in both directions. The kernel's own limit of descriptors is 253 (SCM_MAX_FD).
inline constexpr size_t kMaxPacketBytes = 65536;
inline constexpr size_t kMaxPacketFds = 64;

// A message that was received, with its descriptors, which it owns.
struct Packet {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;  // all that came with the message, or none
  // kSystem: descriptors came with the message, but this process was at a limit and could not take them.
  // The bytes are whole, so the receiver can still read the message and refuse it.
  Status descriptors;
};

// A non-blocking socket that listens at `path`. A socket file on which nobody listens any more is
// replaced. The mode is 0666, because the folder and the peer's credentials decide who may connect.
// kSystem: another process listens there, or the kernel refuses. kInvalidArgument: the path is empty or
// longer than 107 bytes.
Result<UniqueFd> listen_seqpacket(const std::string& path);

inline constexpr int64_t kSeqpacketConnectMs = 5'000;
// A blocking socket, connected to the listener at `path`. If the listener's queue is full (the listener
// is stopped or has much to do), the call waits for at most `timeout_ms`. kNoDaemon: nobody listens, or
// the time is over.
Result<UniqueFd> connect_seqpacket(const std::string& path, int64_t timeout_ms = kSeqpacketConnectMs);
// Whether a process listens at `path`, even if it is stopped or its queue is full. Never waits. It makes
// a connection and closes it at once.
bool somebody_listens(const std::string& path);

// How long a send (or a connect) on a blocking socket may take, in ms; 0: without a limit.
Status limit_sends(int socket, int64_t timeout_ms);

// Sends one message with copies of `fds`, which stay the caller's. kInProgress: a non-blocking socket
// would block, or the time of limit_sends() is over; nothing was sent. kDaemonLost: the peer has closed.
// kInternal: the message is over a limit above.
Status send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> fds);
// Receives one message. kInProgress: nothing is there (non-blocking sockets). kDaemonLost: the peer has
// closed, and all that it had sent was received. kInvalidArgument: the message is over a limit above.
Result<Packet> receive_packet(int socket);

// The process at the other end as it was when it connected or began to listen. The kernel fills it in,
// so it cannot be forged. `pid` is 0 for a process that is not visible from this PID namespace.
struct PeerCredentials {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};
Result<PeerCredentials> peer_credentials(int socket);

}  // namespace hdt
