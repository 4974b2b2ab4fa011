// incoming.h: the incoming half of a connection: receives posted for the next frames, frames validated and
// delivered in order, payload of large writes received by the library straight into its place.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transports/tagged/channel.h"
#include "transports/tagged/frame.h"

namespace hdt::transport::tagged {

// What frames are handed to.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // Where a write's payload goes, or nullptr if the peer may not write there.
  virtual std::byte* locate(uint64_t region, uint64_t offset, size_t bytes) = 0;
  // The first frame of every connection has been taken.
  virtual void on_probe() = 0;
  virtual Status on_taken(uint64_t number) = 0;
  virtual void on_message(std::span<const std::byte> message) = 0;
  virtual void on_written(const Immediate& immediate, std::span<const std::byte> placed) = 0;
};

class Incoming {
 public:
  Incoming();
  // Before the first frame; both ends the same.
  void set_segment_bytes(size_t bytes) { segment_bytes_ = bytes; }
  // Posts the receives that are due: for frames, and for segments of writes whose frames have come.
  Status post(Channel& channel);
  Status on_frame(uint64_t number, size_t bytes, FrameSink& sink);
  Status on_segment(uint64_t number, size_t bytes, FrameSink& sink);
  // Frames below this number have been delivered.
  uint64_t taken() const { return waiting_.empty() ? next_ : waiting_.front().number; }
  // Some have been delivered that the peer has not been told of.
  bool to_tell() const { return delivered_ > 0; }
  void told() { delivered_ = 0; }
  // Has a write into `region` begun that is not delivered?
  bool inside_write_to(uint64_t region) const;
  // The library had no room for something.
  bool starved() const { return starved_; }
  bool segments_busy() const { return segments_busy_ > 0; }

 private:
  // Receives posted ahead; more come in the window, then the library keeps them.
  static constexpr size_t kSlots = 16;
  struct Slot {
    size_t bytes = 0;  // 0: nothing has come yet
    bool posted = false;
  };
  // A delivery that waits for its turn, or for its payload.
  struct Item {
    uint64_t number = 0;
    FrameType type = FrameType::kMessage;
    std::vector<std::byte> content;  // a message, or a short payload
    Immediate immediate{};
    std::byte* place = nullptr;
    size_t bytes = 0;
    uint64_t region = 0;
    uint64_t first_segment = 0;
    uint64_t segments = 0;
    uint64_t posted = 0;
    uint64_t arrived = 0;
  };
  Status take(std::span<const std::byte> frame, FrameSink& sink);
  Status begin_write(const FrameHeader& header, std::span<const std::byte> body, Item& item, FrameSink& sink);
  Status post_segments(Channel& channel);
  bool overlaps_earlier(size_t index) const;
  void deliver_ready(FrameSink& sink);
  std::byte* buffer_of(uint64_t number) { return buffers_.get() + number % kSlots * kMaxFrameBytes; }

  size_t segment_bytes_ = kMinSegmentBytes;
  std::unique_ptr<std::byte[]> buffers_;
  std::array<Slot, kSlots> slots_;
  uint64_t next_ = 0;    // the frame to be looked at next
  uint64_t posted_ = 0;  // receives are posted for frames below
  std::deque<Item> waiting_;
  uint64_t next_segment_ = 0;  // number of the next write's first segment
  size_t segments_busy_ = 0;
  bool starved_ = false;
  uint64_t delivered_ = 0;
};

}  // namespace hdt::transport::tagged
