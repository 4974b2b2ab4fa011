// path_test.h: the beginning of every connection: both ends send packets of growing size, up to the
// largest that the connection will send. If a switch or tunnel on the way has a smaller MTU than the
// NIC, it drops large packets without a message. Connect, handshake and small calls then work, and after
// that nothing moves. TCP itself would notice after minutes, if at all.
//
//   dialer                       acceptor
//   kHere, kSize ..., kAll  -->
//                           <--  kHere, kSize ..., kAll    when kHere has arrived
//                           <--  kSeen                     when kAll has arrived: all sizes pass both ways
//
// So making a connection takes one more round trip, and nothing is slower later. Each size is one packet
// of its own (MSG_EOR keeps the kernel from joining them), and each is larger than the one before, so
// the size at which the stream is stuck shows which sizes pass. It is enough that the kernel at the
// other end has a packet (TCP_INFO), so a peer whose process is stopped is not taken for a narrow path.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/status.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/path_memory.h"

namespace hdt::transport::tcp {

// One end of the test. Owned by its connection and used on its thread; a new test for every dial. It
// queues and judges; the connection reads the peer's frames and has the deadlines.
class PathTest {
 public:
  // kDone: everything queued is sent. kBlocked: the socket is full. kFailed: errno is set.
  enum class Pump : uint8_t { kDone, kBlocked, kFailed };  // kFailed: errno is set

  // Queues kHere, the sizes and kAll. `fd` is connected. `sizes`: false on the loopback device, where
  // nothing lies between the ends. `limit`: why the connection began with smaller packets, which the
  // peer is sent in kHere; nothing: it did not.
  void begin(int fd, bool sizes, const std::optional<PathLimit>& limit);
  // Queues kSeen: everything of the peer has arrived.
  void confirm();
  // Sends what is queued, one sendmsg() for each frame.
  Pump pump(int fd);
  // A kPath frame of the peer has arrived with all its padding.
  void on_frame(const FrameHeader& header);

  bool begun() const { return begun_; }
  uint32_t largest() const { return largest_; }  // the largest packet sent, in bytes; 0: no sizes are tried
  bool pending() const { return !queue_.empty(); }                // frames are queued
  bool heard() const { return heard_; }                           // the peer's kHere has arrived
  bool all_came() const { return all_came_; }                     // the peer's kAll has arrived
  bool confirmed() const { return confirmed_; }                   // the peer's kSeen has arrived
  const std::optional<PathLimit>& told() const { return told_; }  // from the peer's kHere; nothing: no limit

  // The limit that the path seems to have: small packets pass, larger ones are under way, and for
  // `patience_ns` no more have arrived in that direction. Nothing: that cannot be concluded, or not yet.
  // Judges both directions and returns the smaller limit; `passes` is 0 if none of the sizes arrived.
  std::optional<PathLimit> stuck(int fd, int64_t patience_ns, int64_t now) const;

 private:
  // Queues a frame of `padding` bytes payload; `detail` becomes its offset.
  void push(uint64_t step, uint32_t padding, uint64_t detail);

  bool begun_ = false;
  std::deque<FrameHeader> queue_;
  size_t front_done_ = 0;  // bytes of the front frame that are sent
  // A frame that was queued, and where it ends in the stream of this direction.
  struct Step {
    uint64_t end;     // bytes of the stream up to its end
    uint32_t packet;  // the length of the packet that it makes; 0: not a size
  };
  std::vector<Step> steps_;  // everything that was queued, in order; not emptied by pump()
  uint32_t largest_ = 0;
  uint32_t headers_ = 0;  // bytes of IP and TCP headers in each packet
  int64_t begun_ns_ = 0;  // when begin() was called
  bool heard_ = false;
  int64_t came_ns_ = 0;  // when the latest frame of the peer arrived
  uint32_t came_ = 0;    // the latest kSize of the peer that has arrived
  bool all_came_ = false;
  bool confirmed_ = false;
  std::optional<PathLimit> told_;
};

// Makes a socket that is not connected yet use packets of at most `bytes` bytes in both directions
// (TCP_MAXSEG). `family`: AF_INET or AF_INET6. kSystem if the kernel refuses.
Status limit_packets(int fd, int family, uint32_t bytes);

}  // namespace hdt::transport::tcp
