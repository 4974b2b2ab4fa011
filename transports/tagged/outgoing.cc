// outgoing.cc: queues and sends frames and segments; see outgoing.h.
#include "transports/tagged/outgoing.h"

#include <cstring>

#include "transports/tagged/operation.h"

namespace hdt::transport::tagged {

// The fields that are known later are written into the bytes of the header: `taken` when the frame is
// sent, region and offset by push_write().
Outgoing::Frame& Outgoing::push(FrameType type, uint64_t token, size_t frame_bytes, size_t payload_bytes) {
  Frame& frame = queue_.emplace_back();
  frame.type = type;
  frame.token = token;
  frame.payload_bytes = payload_bytes;
  frame.bytes.resize(frame_bytes);
  FrameHeader header;
  header.type = type;
  header.payload_bytes = static_cast<uint32_t>(payload_bytes);
  std::memcpy(frame.bytes.data(), &header, sizeof header);
  return frame;
}

void Outgoing::push_probe() { push(FrameType::kProbe, 0, sizeof(FrameHeader), 0); }

void Outgoing::push_message(std::span<const std::byte> message, uint64_t token) {
  Frame& frame = push(FrameType::kMessage, token, sizeof(FrameHeader) + message.size(), message.size());
  std::memcpy(frame.bytes.data() + sizeof(FrameHeader), message.data(), message.size());
}

void Outgoing::push_write(const void* data, size_t bytes, uint64_t region, uint64_t offset,
                          const Immediate& immediate, uint64_t token) {
  const size_t head = sizeof(FrameHeader) + kImmediateBytes;
  const bool in_segments = segments_of(bytes, segment_bytes_) > 0;
  Frame& frame = push(FrameType::kWrite, token, head + (in_segments ? 0 : bytes), bytes);
  std::memcpy(frame.bytes.data() + offsetof(FrameHeader, region), &region, sizeof region);
  std::memcpy(frame.bytes.data() + offsetof(FrameHeader, offset), &offset, sizeof offset);
  std::memcpy(frame.bytes.data() + sizeof(FrameHeader), immediate.data(), immediate.size());
  if (in_segments) {
    frame.payload = static_cast<const std::byte*>(data);
    frame.segments_left = segments_of(bytes, segment_bytes_);
  } else if (bytes > 0) {
    std::memcpy(frame.bytes.data() + head, data, bytes);
  }
  ++queued_writes_;
  queued_write_bytes_ += bytes;
}

// 1. Sends frames until the window is closed, the queue is empty or the data path is full.
// 2. Sends segments of the frames that were sent.
// 3. If no frame has carried `taken` and the peer needs it, inserts a kTaken frame before the frames that
//    wait. They have no number yet, so nothing changes for them. If there is no room for it, it is removed
//    again.
Status Outgoing::flush(DataPath& data_path, uint64_t taken, bool tell, bool& told) {
  told = false;
  starved_ = false;
  bool went = true;
  while (went && handed_ < queue_.size() && in_window_ < kFrameWindow) {
    HDT_RETURN_IF_ERROR(send_front(data_path, taken, went));
    told = told || went;
  }
  HDT_RETURN_IF_ERROR(send_segments(data_path));
  if (!tell || told || !went) return Status::ok();
  // Before the frames that wait for the window: the peer may be waiting for this one to open its own.
  Frame frame;
  frame.type = FrameType::kTaken;
  FrameHeader header;
  header.type = FrameType::kTaken;
  frame.bytes.resize(sizeof header);
  std::memcpy(frame.bytes.data(), &header, sizeof header);
  const auto place = queue_.begin() + static_cast<ptrdiff_t>(handed_);
  queue_.insert(place, std::move(frame));
  HDT_RETURN_IF_ERROR(send_front(data_path, taken, told));
  if (!told) queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(handed_));
  return Status::ok();
}

// The number is the frame's place in the queue, so it must not be inserted before a handed frame.
Status Outgoing::send_front(DataPath& data_path, uint64_t taken, bool& went) {
  Frame& frame = queue_[handed_];
  const uint64_t number = first_ + handed_;
  std::memcpy(frame.bytes.data() + offsetof(FrameHeader, taken), &taken, sizeof taken);
  const Result<bool> started = data_path.send(number, frame.bytes.data(), frame.bytes.size(),
                                              operation_id(Operation::kFrameSent, number));
  if (!started.is_ok()) return started.status();
  went = started.value();
  starved_ = starved_ || !went;
  if (!went) return Status::ok();
  frame.busy = true;
  ++frames_busy_;
  if (in_window(frame)) ++in_window_;
  ++handed_;
  return Status::ok();
}

// Segments follow their frame in the order of the queue, because the receiver posts its receives in that
// order. Frames without segments are passed over; the frame to go on with is remembered from call to call.
Status Outgoing::send_segments(DataPath& data_path) {
  segment_frame_ = std::max(segment_frame_, first_);
  while (segments_busy_ < segments_ahead(segment_bytes_) && segment_frame_ < first_ + handed_) {
    const Frame& frame = queue_[segment_frame_ - first_];
    if (frame.payload == nullptr) {
      ++segment_frame_;
      continue;
    }
    const size_t bytes = std::min(segment_bytes_, frame.payload_bytes - segment_offset_);
    const Result<bool> started = data_path.send(kSegmentTag | next_segment_, frame.payload + segment_offset_,
                                                bytes, operation_id(Operation::kSegmentSent, next_segment_));
    if (!started.is_ok()) return started.status();
    if (!started.value()) {
      starved_ = true;
      return Status::ok();
    }
    segment_owners_.push_back(segment_frame_);
    ++next_segment_;
    ++segments_busy_;
    segment_offset_ += bytes;
    if (segment_offset_ < frame.payload_bytes) continue;
    ++segment_frame_;
    segment_offset_ = 0;
  }
  return Status::ok();
}

// The data path's numbers are checked like foreign ones.
Outgoing::Frame* Outgoing::sent_frame(uint64_t number) {
  return number >= first_ && number - first_ < handed_ ? &queue_[number - first_] : nullptr;
}

Status Outgoing::on_frame_sent(uint64_t number, std::vector<Sent>& sent) {
  Frame* frame = sent_frame(number);
  if (frame == nullptr || !frame->busy) return {Code::kInternal, "a frame was reported twice"};
  frame->busy = false;
  --frames_busy_;
  retire(sent);
  return Status::ok();
}

Status Outgoing::on_segment_sent(uint64_t number, std::vector<Sent>& sent) {
  if (number < first_segment_ || number >= next_segment_)
    return {Code::kInternal, "a segment was reported twice"};
  Frame* frame = sent_frame(segment_owners_[number - first_segment_]);
  if (frame == nullptr || frame->segments_left == 0) return {Code::kInternal, "a segment was reported twice"};
  --frame->segments_left;
  --segments_busy_;
  retire(sent);
  return Status::ok();
}

// Frames of kTaken were not counted when they were sent. The front may be beyond peer_taken_, as kTaken
// frames leave without an answer.
Status Outgoing::on_taken(uint64_t number, std::vector<Sent>& sent) {
  if (number < peer_taken_ || number > first_ + handed_) {
    return {Code::kLink, "malformed frame: the peer has taken " + std::to_string(number) + " of " +
                             std::to_string(first_ + handed_) + " frames, and before " +
                             std::to_string(peer_taken_)};
  }
  for (uint64_t taken = std::max(peer_taken_, first_); taken < number; ++taken) {
    if (in_window(queue_[taken - first_])) --in_window_;
  }
  peer_taken_ = number;
  retire(sent);
  return Status::ok();
}

// A frame needs three things to leave: the data path is done with it and with all its segments, and the peer
// has taken it. kTaken needs no answer, so it leaves without the last. Everything behind a frame that must
// wait waits as well, as kSent is reported in order.
void Outgoing::retire(std::vector<Sent>& sent) {
  while (handed_ > 0) {
    const Frame& front = queue_.front();
    if (front.busy || front.segments_left > 0 || (in_window(front) && first_ >= peer_taken_)) return;
    pop_front(sent);
    --handed_;
    while (!segment_owners_.empty() && segment_owners_.front() < first_) {
      segment_owners_.pop_front();
      ++first_segment_;
    }
  }
}

// The number of the front grows with every frame that leaves.
void Outgoing::pop_front(std::vector<Sent>& sent) {
  const Frame& frame = queue_.front();
  if (frame.type == FrameType::kWrite) {
    --queued_writes_;
    queued_write_bytes_ -= frame.payload_bytes;
  }
  if (frame.type == FrameType::kWrite || frame.token != 0) sent.push_back({frame.token, frame.payload_bytes});
  queue_.pop_front();
  ++first_;
}

void Outgoing::give_up(std::vector<Sent>& given_up) {
  while (!queue_.empty()) pop_front(given_up);
  handed_ = frames_busy_ = segments_busy_ = 0;
  in_window_ = 0;
}

}  // namespace hdt::transport::tagged
