// raw_ring.cc: connects the ring, and the loop: send what the socket takes, receive what it has, and
// sleep if neither moves.
#include "bench/commbench/raw_ring.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "bench/commbench/peer_communicator.h"

namespace hdt::bench {
namespace {

// 256 KiB stay in the cache between the two copies of a loopback connection.
constexpr size_t kPiece = size_t{256} << 10;

// Where a rank listens, in the form in which it is gathered.
struct Endpoint {
  char address[60];
  int32_t port;
};

// Closes the socket unless it was released.
class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// The rank with this rank's place on the next node; -1 if the nodes are unequal.
int next_of(const Communicator& group) {
  int nodes = 0;
  for (int rank = 0; rank < group.ranks(); ++rank) nodes = std::max(nodes, group.node_of(rank) + 1);
  // The ranks of each node, in order.
  std::vector<std::vector<int>> members(static_cast<size_t>(nodes));
  for (int rank = 0; rank < group.ranks(); ++rank)
    members[static_cast<size_t>(group.node_of(rank))].push_back(rank);
  for (const auto& node : members) {
    if (node.size() != members[0].size()) return -1;
  }
  const auto own = static_cast<size_t>(group.node_of(group.rank()));
  const auto place = std::find(members[own].begin(), members[own].end(), group.rank()) - members[own].begin();
  return members[(own + 1) % members.size()][static_cast<size_t>(place)];
}

// Port 0: any free one.
Result<Endpoint> listen_on(int fd, const std::string& address) {
  sockaddr_in bound{};
  bound.sin_family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &bound.sin_addr) != 1) {
    return Status(Code::kInvalidArgument,
                  "HDT_NICS_ADDRESSES: '" + address + "' given; expected an IPv4 address");
  }
  socklen_t length = sizeof bound;
  auto* generic = reinterpret_cast<sockaddr*>(&bound);
  if (bind(fd, generic, length) != 0 || listen(fd, 1) != 0 || getsockname(fd, generic, &length) != 0) {
    return Status::from_errno("listening on " + address, errno);
  }
  Endpoint endpoint{};
  std::strncpy(endpoint.address, address.c_str(), sizeof endpoint.address - 1);
  endpoint.port = ntohs(bound.sin_port);
  return endpoint;
}

Status connect_to(int fd, const Endpoint& endpoint) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(endpoint.port));
  inet_pton(AF_INET, endpoint.address, &address.sin_addr);
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) return Status::ok();
  return Status::from_errno(std::string("connecting to ") + endpoint.address, errno);
}

}  // namespace

Result<std::unique_ptr<RawRing>> RawRing::connect(Communicator& group, int64_t timeout_s) {
  const int next = next_of(group);
  if (next < 0) return Status(Code::kInvalidArgument, "nodes of unequal numbers of ranks");
  const Result<std::string> address = reachable_address(false);
  if (!address.is_ok()) return address.status();
  Socket listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  Socket to_next(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (listener.fd() < 0 || to_next.fd() < 0) return Status::from_errno("socket", errno);
  // 1. Listen, and exchange the addresses. 2. Connect to the next rank. 3. Accept the rank before.
  const Result<Endpoint> mine = listen_on(listener.fd(), address.value());
  if (!mine.is_ok()) return mine.status();
  std::vector<Endpoint> endpoints(static_cast<size_t>(group.ranks()));
  HDT_RETURN_IF_ERROR(group.gather_all(&mine.value(), sizeof(Endpoint), endpoints.data()));

  // The listener's queue takes the connection before it is accepted, so no rank waits for another one
  // here.
  HDT_RETURN_IF_ERROR(connect_to(to_next.fd(), endpoints[static_cast<size_t>(next)]));
  pollfd wait{listener.fd(), POLLIN, 0};
  if (poll(&wait, 1, static_cast<int>(std::min<int64_t>(timeout_s, 86400) * 1000)) != 1) {
    return Status(Code::kTimeout, "the rank before this one in the ring has not connected");
  }
  Socket from_previous(accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (from_previous.fd() < 0) return Status::from_errno("accept", errno);
  // Small pieces must not wait for acknowledgements.
  const int on = 1;
  setsockopt(to_next.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return std::unique_ptr<RawRing>(new RawRing(to_next.release(), from_previous.release(), timeout_s));
}

RawRing::~RawRing() {
  close(to_next_);
  close(from_previous_);
}

Status RawRing::exchange(Region from, Region into, size_t bytes) {
  // The next piece of a region, after `done` bytes of the exchange.
  const auto part = [bytes](Region region, size_t done) {
    const size_t at = done % region.bytes;
    return Region{region.data + at, std::min({bytes - done, region.bytes - at, kPiece})};
  };
  size_t sent = 0;
  size_t received = 0;
  // Neither direction ever blocks the other one.
  while (sent < bytes || received < bytes) {
    bool moved = false;
    if (sent < bytes) {
      const Region piece = part(from, sent);
      const ssize_t count = send(to_next_, piece.data, piece.bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count < 0 && errno != EAGAIN && errno != EINTR) return Status::from_errno("raw: send", errno);
      moved = count > 0;
      sent += count > 0 ? static_cast<size_t>(count) : 0;
    }
    if (received < bytes) {
      const Region piece = part(into, received);
      const ssize_t count = recv(from_previous_, piece.data, piece.bytes, MSG_DONTWAIT);
      if (count == 0) return {Code::kRankLost, "raw: the rank before this one has closed its socket"};
      if (count < 0 && errno != EAGAIN && errno != EINTR) return Status::from_errno("raw: recv", errno);
      moved = moved || count > 0;
      received += count > 0 ? static_cast<size_t>(count) : 0;
    }
    if (moved) continue;
    // Only for what is not complete yet.
    pollfd waits[2] = {{to_next_, static_cast<short>(sent < bytes ? POLLOUT : 0), 0},
                       {from_previous_, static_cast<short>(received < bytes ? POLLIN : 0), 0}};
    if (poll(waits, 2, static_cast<int>(std::min<int64_t>(timeout_s_, 86400) * 1000)) == 0) {
      return {Code::kTimeout, "raw: nothing moved before the deadline"};
    }
  }
  return Status::ok();
}

}  // namespace hdt::bench
