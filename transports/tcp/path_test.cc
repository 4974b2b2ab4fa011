// path_test.cc: the packets of the path test, and the conclusions from what arrives; see path_test.h.
#include "transports/tcp/path_test.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "base/clock.h"

namespace hdt::transport::tcp {

namespace {

// The usual MTUs of NICs, tunnels and providers, from one that is sure to pass. With the largest size
// and two small frames around them, these make ten packets, as many as TCP may send at once on a new
// connection (RFC 6928).
constexpr std::array<uint32_t, 7> kUsualPackets = {576, 1280, 1400, 1500, 2000, 4000, 8900};
// TCP_MAXSEG goes no higher, and the sum of all sizes must fit into the window that a connection begins
// with (64 KiB).
constexpr uint32_t kMostPacket = 32'000;
// Bytes of headers, without options other than time stamps.
constexpr uint32_t kTcpHeader = 20, kTimestamps = 12, kIpv4Header = 20, kIpv6Header = 40;
static_assert(kMostPacket <= kMaxPathBytes);

// All zero if the socket is not connected.
tcp_info info_of(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes);
  return info;
}

uint32_t ip_header(int family) { return family == AF_INET6 ? kIpv6Header : kIpv4Header; }

int family_of(int fd) {
  int family = AF_INET;
  socklen_t bytes = sizeof family;
  ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes);
  return family;
}

}  // namespace

// The value is the maximum segment size without options; the kernel takes the time stamps off it itself.
Status limit_packets(int fd, int family, uint32_t bytes) {
  const int segment = static_cast<int>(bytes - ip_header(family) - kTcpHeader);
  if (::setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &segment, sizeof segment) == 0) return Status::ok();
  return Status::from_errno("cannot set socket option TCP_MAXSEG", errno);
}

// Each size is a frame whose payload fills the packet: packet length minus the headers of IP and TCP
// minus the frame's header. Sizes at or above the largest segment are left out, as the kernel would cut
// them; the largest itself is sent last.
void PathTest::begin(int fd, bool sizes, const std::optional<PathLimit>& limit) {
  begun_ = true;
  begun_ns_ = now_ns();
  const tcp_info info = info_of(fd);
  const bool stamps = (info.tcpi_options & TCPI_OPT_TIMESTAMPS) != 0;
  headers_ = ip_header(family_of(fd)) + kTcpHeader + (stamps ? kTimestamps : 0);
  const PathLimit told = limit.value_or(PathLimit{});
  push(kPathHere, 0, uint64_t{told.vanishes} << 32 | told.passes);
  if (sizes) {
    const uint32_t largest = std::min(info.tcpi_snd_mss + headers_, kMostPacket);
    const auto size = [this](uint32_t packet) {
      push(kPathSize, packet - headers_ - static_cast<uint32_t>(sizeof(FrameHeader)), packet);
    };
    for (const uint32_t packet : kUsualPackets) {
      if (packet < largest) size(packet);
    }
    if (largest > headers_ + sizeof(FrameHeader)) size(largest);
    largest_ = largest;
  }
  push(kPathAll, 0, 0);
}

void PathTest::confirm() { push(kPathSeen, 0, 0); }

// Only the header is queued: the padding is zeroes that pump() adds.
void PathTest::push(uint64_t step, uint32_t padding, uint64_t detail) {
  FrameHeader header;
  header.type = FrameType::kPath;
  header.payload_bytes = padding;
  header.region = step;
  header.offset = detail;
  queue_.push_back(header);
  const uint64_t before = steps_.empty() ? 0 : steps_.back().end;
  steps_.push_back({before + sizeof header + padding, step == kPathSize ? static_cast<uint32_t>(detail) : 0});
}

// MSG_EOR ends a packet with the frame. A frame that the socket took in part is continued, which only
// happens if the socket buffer is full.
PathTest::Pump PathTest::pump(int fd) {
  static const std::array<std::byte, kMaxPathBytes> kPadding{};
  while (!queue_.empty()) {
    FrameHeader& header = queue_.front();
    const size_t total = sizeof header + header.payload_bytes;
    std::array<iovec, 2> parts{};
    size_t count = 0;
    if (front_done_ < sizeof header) {
      parts[count++] = {reinterpret_cast<std::byte*>(&header) + front_done_, sizeof header - front_done_};
    }
    const size_t padded = front_done_ > sizeof header ? front_done_ - sizeof header : 0;
    if (padded < header.payload_bytes) {
      parts[count++] = {const_cast<std::byte*>(kPadding.data()), header.payload_bytes - padded};
    }
    msghdr message{};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(fd, &message, MSG_EOR | MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Pump::kBlocked : Pump::kFailed;
    front_done_ += static_cast<size_t>(sent);
    if (front_done_ < total) continue;
    front_done_ = 0;
    queue_.pop_front();
  }
  return Pump::kDone;
}

// The header has passed check_frame(), so `region` is a known step. The contents are foreign: a limit
// that makes no sense is ignored, and sizes are only compared.
void PathTest::on_frame(const FrameHeader& header) {
  came_ns_ = now_ns();
  if (header.region == kPathHere) {
    heard_ = true;
    const PathLimit limit{static_cast<uint32_t>(header.offset), static_cast<uint32_t>(header.offset >> 32)};
    // Foreign bytes: what makes no sense is not used.
    if (limit.passes >= kUsualPackets.front() && limit.passes < limit.vanishes &&
        limit.vanishes <= kMostPacket)
      told_ = limit;
  } else if (header.region == kPathSize) {
    came_ = static_cast<uint32_t>(header.offset);
  } else if (header.region == kPathAll) {
    all_came_ = true;
  } else {
    confirmed_ = true;
  }
}

// Both directions are judged by themselves.
// 1. Ours, by TCP_INFO: the peer's kernel has acknowledged the first frame but not the last, no
//    acknowledgement has arrived for `patience_ns`, and everything has left our queue. The largest size
//    that is acknowledged passes.
// 2. Theirs: kHere has arrived, kAll has not, and nothing more came for `patience_ns`. The latest size
//    that arrived passes.
// `vanishes` is our next larger size, in both cases: both ends try the same sizes.
std::optional<PathLimit> PathTest::stuck(int fd, int64_t patience_ns, int64_t now) const {
  std::optional<PathLimit> found;
  const auto narrow = [&](uint32_t passes) {
    const auto after =
        std::find_if(steps_.begin(), steps_.end(), [&](const Step& step) { return step.packet > passes; });
    if (after == steps_.end() || (found && found->passes <= passes)) return;
    found = PathLimit{passes, after->packet};
  };
  const tcp_info info = info_of(fd);
  const uint64_t acknowledged = info.tcpi_bytes_acked;  // the SYN counts as a byte; every frame is longer
  const int64_t quiet_ns = int64_t{info.tcpi_last_ack_recv} * kNsPerMs;
  if (std::min(now - begun_ns_, quiet_ns) >= patience_ns && acknowledged >= sizeof(FrameHeader) &&
      acknowledged < steps_.back().end && queue_.empty()) {
    uint32_t passes = 0;
    for (const Step& step : steps_) {
      if (step.end <= acknowledged && step.packet != 0) passes = step.packet;
    }
    narrow(passes);
  }
  if (heard_ && !all_came_ && now - came_ns_ >= patience_ns) narrow(came_);
  return found;
}

}  // namespace hdt::transport::tcp
