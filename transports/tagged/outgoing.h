// outgoing.h: the outgoing half of a connection: a queue of frames, sent as far as the window allows, each
// followed by the segments of its payload. A frame leaves the queue, in order, when the peer has taken it and
// the library is done with its memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transports/tagged/channel.h"
#include "transports/tagged/frame.h"

namespace hdt::transport::tagged {

class Outgoing {
 public:
  // A frame that left the queue and is to be reported.
  struct Sent {
    uint64_t token;
    size_t bytes;
  };

  // Before the first frame; both ends the same.
  void set_segment_bytes(size_t bytes) { segment_bytes_ = bytes; }
  void push_probe();
  void push_message(std::span<const std::byte> message, uint64_t token);
  void push_write(const void* data, size_t bytes, uint64_t region, uint64_t offset,
                  const Immediate& immediate, uint64_t token);
  // Hands over what the window and the channel take. `taken` is told to the peer, by a frame of its own if
  // `tell` and nothing else goes; `told` says whether it was.
  Status flush(Channel& channel, uint64_t taken, bool tell, bool& told);
  Status on_frame_sent(uint64_t number, std::vector<Sent>& sent);
  Status on_segment_sent(uint64_t number, std::vector<Sent>& sent);
  // The peer says that it has taken everything below `number`.
  Status on_taken(uint64_t number, std::vector<Sent>& sent);
  // Empties the queue; the frames to report as failed are appended.
  void give_up(std::vector<Sent>& given_up);

  size_t queued_writes() const { return queued_writes_; }
  size_t queued_write_bytes() const { return queued_write_bytes_; }
  // Something has been handed to the library, and it is not done with it.
  bool library_busy() const { return frames_busy_ > 0 || segments_busy_ > 0; }
  // The library had no room for something.
  bool starved() const { return starved_; }
  // Something has been handed over and the peer has not taken it.
  bool outstanding() const { return in_window_ > 0; }
  uint64_t taken() const { return peer_taken_; }

 private:
  struct Frame {
    std::vector<std::byte> bytes;  // header, immediate, message or short payload
    FrameType type = FrameType::kMessage;
    const std::byte* payload = nullptr;  // of a write, if it goes in segments
    size_t payload_bytes = 0;
    uint64_t token = 0;
    bool busy = false;
    uint64_t segments_left = 0;
  };
  Frame& push(FrameType type, uint64_t token, size_t frame_bytes, size_t payload_bytes);
  bool in_window(const Frame& frame) const { return frame.type != FrameType::kTaken; }
  Frame* sent_frame(uint64_t number);
  Status send_front(Channel& channel, uint64_t taken, bool& went);
  Status send_segments(Channel& channel);
  void retire(std::vector<Sent>& sent);
  void pop_front(std::vector<Sent>& sent);

  size_t segment_bytes_ = kMinSegmentBytes;
  std::deque<Frame> queue_;
  uint64_t first_ = 0;  // number of the front frame
  size_t handed_ = 0;   // frames of the queue's front that have been sent
  uint64_t peer_taken_ = 0;
  uint64_t in_window_ = 0;
  size_t frames_busy_ = 0;
  bool starved_ = false;
  size_t queued_writes_ = 0;
  size_t queued_write_bytes_ = 0;
  // Segments, numbered over all writes; the one to send next belongs to frame segment_frame_, at
  // segment_offset_.
  uint64_t next_segment_ = 0;
  uint64_t segment_frame_ = 0;
  size_t segment_offset_ = 0;
  size_t segments_busy_ = 0;
  std::deque<uint64_t> segment_owners_;  // frame numbers of segments [first_segment_, next_segment_)
  uint64_t first_segment_ = 0;
};

}  // namespace hdt::transport::tagged
