// outgoing.h: the outgoing half of a data path: a queue of frames, which are sent as far as the window
// allows, each followed by the segments of its payload. A frame leaves the queue, in order, when the peer
// has taken it and the library is done with its memory. Only then is it reported as sent, so a goodbye on
// the control socket cannot overtake anything that was reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "transports/tagged/data_path.h"
#include "transports/tagged/frame.h"

namespace hdt::transport::tagged {

// One per connection, owned by it and used on its thread. The queue has two parts: the first `handed_`
// frames were handed to the data path and have numbers, first_ and up; those behind them wait for the window
// or for room, and get their number when they are sent.
//
// Segments of the handed frames are sent in order, segments_ahead() at a time. The data path must be
// destroyed before this is: it reads from the frames.
class Outgoing {
 public:
  // A frame that left the queue, to be reported as kSent. Messages with token 0 are not reported and never
  // appear here.
  struct Sent {
    uint64_t token;
    size_t bytes;
  };

  // To be called before the first frame, with the same number at both ends.
  void set_segment_bytes(size_t bytes) { segment_bytes_ = bytes; }
  // Queue a frame. A message and short payload are copied; longer payload is read from [data, data +
  // bytes) until it is reported or given up.
  void push_probe();
  void push_message(std::span<const std::byte> message, uint64_t token);
  void push_write(const void* data, size_t bytes, uint64_t region, uint64_t offset,
                  const Immediate& immediate, uint64_t token);
  // Hands over what the window and the data path take. Every frame carries `taken`, the number of frames
  // taken from the peer. `tell`: if no other frame is sent, a kTaken frame carries it. `told`: whether it
  // was sent. A failure is one of the data path.
  Status flush(DataPath& data_path, uint64_t taken, bool tell, bool& told);
  // The data path is done with a frame or a segment; appends to `sent` what has become complete. kInternal:
  // the data path reports what it was not given.
  Status on_frame_sent(uint64_t number, std::vector<Sent>& sent);
  Status on_segment_sent(uint64_t number, std::vector<Sent>& sent);
  // The peer reports that it has taken all frames below `number`, which is foreign. kLink if that cannot
  // be.
  Status on_taken(uint64_t number, std::vector<Sent>& sent);
  // Empties the queue; appends the frames that are to be reported as failed. The data path must have been
  // destroyed.
  void give_up(std::vector<Sent>& given_up);

  // Writes in the queue, handed over or not, and the sum of their payload in bytes.
  size_t queued_writes() const { return queued_writes_; }
  size_t queued_write_bytes() const { return queued_write_bytes_; }
  // True if the data path has something of ours that it is not done with.
  bool library_busy() const { return frames_busy_ > 0 || segments_busy_ > 0; }
  // True if the data path had no room for something: flush() is to be called again.
  bool starved() const { return starved_; }
  // True if something was handed over that the peer has not taken.
  bool outstanding() const { return in_window_ > 0; }
  // Our frames that the peer has taken; a measure of progress.
  uint64_t taken() const { return peer_taken_; }

 private:
  // A frame in the queue.
  struct Frame {
    std::vector<std::byte> bytes;  // as it is sent: header, immediate, message or short payload
    FrameType type = FrameType::kMessage;
    const std::byte* payload = nullptr;  // of a write that goes in segments; null otherwise
    size_t payload_bytes = 0;            // of the message or the write, wherever it travels
    uint64_t token = 0;
    bool busy = false;           // the data path is not done with `bytes`
    uint64_t segments_left = 0;  // segments that the data path is not done with, unsent ones included
  };
  // Queues a frame with its header; the caller fills in the rest.
  Frame& push(FrameType type, uint64_t token, size_t frame_bytes, size_t payload_bytes);
  // kTaken counts in no window: it must be possible to send it while the window is closed.
  bool in_window(const Frame& frame) const { return frame.type != FrameType::kTaken; }
  // The handed frame of that number; null: there is none in the queue.
  Frame* sent_frame(uint64_t number);
  // Sends the first frame that was not handed over. `went`: false if the data path had no room.
  Status send_front(DataPath& data_path, uint64_t taken, bool& went);
  Status send_segments(DataPath& data_path);
  // Removes complete frames from the front, and forgets their segments.
  void retire(std::vector<Sent>& sent);
  void pop_front(std::vector<Sent>& sent);

  size_t segment_bytes_ = kMinSegmentBytes;
  std::deque<Frame> queue_;
  uint64_t first_ = 0;       // number of the front frame
  size_t handed_ = 0;        // frames at the front that were handed to the data path
  uint64_t peer_taken_ = 0;  // the peer has taken all frames below
  uint64_t in_window_ = 0;   // handed frames in the window that the peer has not taken
  size_t frames_busy_ = 0;   // frames that the data path is not done with
  bool starved_ = false;
  size_t queued_writes_ = 0;
  size_t queued_write_bytes_ = 0;
  // Segments are numbered over all writes. The next one to send has the number next_segment_, and belongs
  // to frame segment_frame_, from byte segment_offset_ of its payload.
  uint64_t next_segment_ = 0;
  uint64_t segment_frame_ = 0;
  size_t segment_offset_ = 0;
  size_t segments_busy_ = 0;             // segments that the data path is not done with
  std::deque<uint64_t> segment_owners_;  // frame numbers of segments [first_segment_, next_segment_)
  uint64_t first_segment_ = 0;
};

}  // namespace hdt::transport::tagged
