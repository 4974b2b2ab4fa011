// incoming.h: the incoming half of a data path. It posts receives for the next frames, validates the frames
// and delivers them in order. Payload of large writes is received by the library straight into its place:
// only after the frame of a write was checked are receives posted for its segments. So a peer cannot place
// a byte outside of what was granted to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transports/tagged/data_path.h"
#include "transports/tagged/frame.h"

namespace hdt::transport::tagged {

// The receiver of frames, that is, the connection. Called inside on_frame() and on_segment(), on the
// device's thread.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // The place of the payload [offset, offset + bytes) of a write. nullptr if the peer may not write there.
  // The arguments are foreign.
  virtual std::byte* locate(uint64_t region, uint64_t offset, size_t bytes) = 0;
  // The probe has been delivered: the first frame of every connection.
  virtual void on_probe() = 0;
  // A frame says that the peer has taken our frames below `number`, which is foreign. Called for every
  // frame, before its content is delivered.
  virtual Status on_taken(uint64_t number) = 0;
  // Deliveries, in the order of the frames. `message` is valid during the call only.
  virtual void on_message(std::span<const std::byte> message) = 0;
  virtual void on_written(const Immediate& immediate, std::span<const std::byte> placed) = 0;
};

// One per connection, owned by it and used on its thread. A frame goes through these states: its receive
// is posted; it has arrived; it was taken (in order of the numbers) and waits in `waiting_`; delivered. A
// write waits for its segments, and everything behind it waits for the write.
//
// The data path must be destroyed before this is: it receives into buffers_.
class Incoming {
 public:
  Incoming();
  // To be called before the first frame, with the same number at both ends.
  void set_segment_bytes(size_t bytes) { segment_bytes_ = bytes; }
  // Posts the receives that are due: for the next frames, and for segments of writes whose frames have
  // been taken. A failure is one of the data path.
  Status post(DataPath& data_path);
  // A receive posted by post() is over, with `bytes` bytes. kLink: the peer broke a rule; kInternal: the
  // data path did. Either ends the connection.
  Status on_frame(uint64_t number, size_t bytes, FrameSink& sink);
  Status on_segment(uint64_t number, size_t bytes, FrameSink& sink);
  // Frames with lower numbers have been delivered. To be sent to the peer.
  uint64_t taken() const { return waiting_.empty() ? next_ : waiting_.front().number; }
  // True if frames were delivered since told(): the peer should be sent taken().
  bool to_tell() const { return delivered_ > 0; }
  void told() { delivered_ = 0; }
  // True if a write into `region` has been taken and is not delivered.
  bool inside_write_to(uint64_t region) const;
  // True if the library had no room for a receive: post() is to be called again.
  bool starved() const { return starved_; }
  // True if receives for segments are posted.
  bool segments_busy() const { return segments_busy_ > 0; }

 private:
  // Receives posted ahead. The window allows more frames; the library keeps those that arrive before their
  // receive is posted.
  static constexpr size_t kSlots = 16;
  // The receive of the frames n, n + kSlots, ...; one at a time.
  struct Slot {
    size_t bytes = 0;  // length of the frame that has arrived; 0: none
    bool posted = false;
  };
  // A frame that was taken, and waits for its turn or for its payload.
  struct Item {
    uint64_t number = 0;  // of the frame
    FrameType type = FrameType::kMessage;
    std::vector<std::byte> content;  // a message, or a short payload
    Immediate immediate{};
    std::byte* place = nullptr;  // of a write's payload; null: it has none
    size_t bytes = 0;
    uint64_t region = 0;
    uint64_t first_segment = 0;  // number of its first segment
    uint64_t segments = 0;       // how many it has; 0: the payload was in the frame
    uint64_t posted = 0;         // receives posted for them
    uint64_t arrived = 0;        // segments that have arrived
  };
  // The next frame in order: checks it, and puts it behind those that wait.
  Status take(std::span<const std::byte> frame, FrameSink& sink);
  // Fills in an item from a write's frame.
  Status begin_write(const FrameHeader& header, std::span<const std::byte> body, Item& item, FrameSink& sink);
  Status post_segments(DataPath& data_path);
  // True if the write's place overlaps with one of an earlier write that waits.
  bool overlaps_earlier(size_t index) const;
  // Delivers from the front what is complete.
  void deliver_ready(FrameSink& sink);
  std::byte* buffer_of(uint64_t number) { return buffers_.get() + number % kSlots * kMaxFrameBytes; }

  size_t segment_bytes_ = kMinSegmentBytes;
  std::unique_ptr<std::byte[]> buffers_;  // kSlots frames of kMaxFrameBytes
  std::array<Slot, kSlots> slots_;
  uint64_t next_ = 0;          // number of the frame to be taken next
  uint64_t posted_ = 0;        // receives were posted for lower numbers
  std::deque<Item> waiting_;   // taken and not delivered, in order
  uint64_t next_segment_ = 0;  // number of the next write's first segment
  size_t segments_busy_ = 0;   // receives posted for segments
  bool starved_ = false;
  uint64_t delivered_ = 0;  // frames delivered since told()
};

}  // namespace hdt::transport::tagged
