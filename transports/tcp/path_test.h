// path_test.h: the first words on every connection: packets of growing size, up to the largest that the
// connection will send, from both ends. A NIC's MTU that is larger than what a switch or tunnel on the way
// lets through drops large packets and tells nobody: connect, handshake and small calls work, and then
// nothing moves. TCP itself would notice after minutes, if at all.
//
//   dialer                       acceptor
//   kHere, kSize ..., kAll  -->
//                           <--  kHere, kSize ..., kAll    when kHere has come
//                           <--  kSeen                     when kAll has come: all sizes pass both ways
//
// So a connection takes one round trip more to be made, and nothing later. Each size is one packet of its own
// (MSG_EOR keeps the kernel from joining them), and all are larger than the one before: what is stuck at one
// size tells which pass. That the kernel at the other end has them is enough (TCP_INFO), so a peer whose
// process is stopped is not taken for a narrow path.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "base/status.h"
#include "transports/tcp/frame.h"
#include "transports/tcp/path_memory.h"

namespace hdt::transport::tcp {

class PathTest {
 public:
  enum class Pump : uint8_t { kDone, kBlocked, kFailed };  // kFailed: errno is set

  // On a connected socket. `sizes`: false on the loopback device, where there is nothing to try. `limit`: why
  // the connection was begun with smaller packets; the peer is told.
  void begin(int fd, bool sizes, const std::optional<PathLimit>& limit);
  // Queues kSeen: everything of the peer has come.
  void confirm();
  // Sends what is queued.
  Pump pump(int fd);
  // A kPath frame of the peer has come in full.
  void on_frame(const FrameHeader& header);

  bool begun() const { return begun_; }
  uint32_t largest() const { return largest_; }  // packet that is sent; 0: sizes are not tried
  bool pending() const { return !queue_.empty(); }
  bool heard() const { return heard_; }                           // the peer's kHere has come
  bool all_came() const { return all_came_; }                     // of the peer's
  bool confirmed() const { return confirmed_; }                   // by the peer: kSeen has come
  const std::optional<PathLimit>& told() const { return told_; }  // of the peer's kHere

  // Small packets pass, and for `patience_ns` nothing more has, though larger ones are under way: which pass.
  // Nothing: that cannot be said (yet).
  std::optional<PathLimit> stuck(int fd, int64_t patience_ns, int64_t now) const;

 private:
  void push(uint64_t step, uint32_t padding, uint64_t detail);

  bool begun_ = false;
  std::deque<FrameHeader> queue_;
  size_t front_done_ = 0;  // bytes of the front frame that are sent
  struct Step {
    uint64_t end;     // of the stream, with it
    uint32_t packet;  // its length; 0: a small one
  };
  std::vector<Step> steps_;  // queued, in order
  uint32_t largest_ = 0;
  uint32_t headers_ = 0;  // bytes of a packet that are not payload
  int64_t begun_ns_ = 0;
  bool heard_ = false;
  int64_t came_ns_ = 0;  // when something of the peer came last
  uint32_t came_ = 0;    // the peer's last size that has come
  bool all_came_ = false;
  bool confirmed_ = false;
  std::optional<PathLimit> told_;
};

// Lets the socket, which is not connected yet, use packets up to this length only, in both directions.
Status limit_packets(int fd, int family, uint32_t bytes);

}  // namespace hdt::transport::tcp
