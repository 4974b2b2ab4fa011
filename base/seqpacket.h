// seqpacket.h: AF_UNIX SOCK_SEQPACKET messages with file descriptors: how a process and its node's daemon
// talk.
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

// Limits of one message, both ways.
inline constexpr size_t kMaxPacketBytes = 65536;
inline constexpr size_t kMaxPacketFds = 64;

struct Packet {
  std::vector<std::byte> bytes;
  std::vector<UniqueFd> fds;  // all that came with it, or none
  // kSystem: descriptors came with it, and this process could not take them, as it is at a limit. The bytes
  // are whole.
  Status descriptors;
};

// Listens at `path` (replacing a stale socket that nobody answers on); mode 0666: who may connect is decided
// by the directory and by peer credentials.
Result<UniqueFd> listen_seqpacket(const std::string& path);

inline constexpr int64_t kSeqpacketConnectMs = 5'000;
// Where as many connections wait as the listener lets wait (it is stopped, or has much to do), this one waits
// for `timeout_ms` at most. kNoDaemon: nobody listens, or it took too long.
Result<UniqueFd> connect_seqpacket(const std::string& path, int64_t timeout_ms = kSeqpacketConnectMs);
// Whether some process listens at `path`, also one that is stopped. Never waits.
bool somebody_listens(const std::string& path);

// How long a send on a blocking socket may take; 0: for ever.
Status limit_sends(int socket, int64_t timeout_ms);

// Non-blocking sockets, and those whose time is up, report kInProgress where they would block.
Status send_packet(int socket, std::span<const std::byte> bytes, std::span<const int> fds);
// A closed peer gives kDaemonLost, when all that it had sent before has been received. Truncated messages are
// an error.
Result<Packet> receive_packet(int socket);

struct PeerCredentials {
  pid_t pid;
  uid_t uid;
  gid_t gid;
};
Result<PeerCredentials> peer_credentials(int socket);

}  // namespace hdt
