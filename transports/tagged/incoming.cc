// incoming.cc: receives, orders and delivers frames; see incoming.h.
#include "transports/tagged/incoming.h"

#include <algorithm>
#include <cstring>

#include "transports/tagged/operation.h"

namespace hdt::transport::tagged {

// Some 130 KB, not zeroed: a frame is read only as far as it has arrived.
Incoming::Incoming() : buffers_(std::make_unique_for_overwrite<std::byte[]>(kSlots * kMaxFrameBytes)) {}

// A slot is free again when its frame was taken, so receives are posted up to kSlots beyond next_.
Status Incoming::post(DataPath& data_path) {
  starved_ = false;
  while (posted_ < next_ + kSlots) {
    const Result<bool> started = data_path.receive(posted_, buffer_of(posted_), kMaxFrameBytes,
                                                   operation_id(Operation::kFrameReceived, posted_));
    if (!started.is_ok()) return started.status();
    if (!started.value()) {
      starved_ = true;
      return Status::ok();
    }
    slots_[posted_ % kSlots] = {0, true};
    ++posted_;
  }
  return post_segments(data_path);
}

// Goes through the waiting writes in order, as the sender does, and posts receives until segments_ahead()
// are under way. A write whose place overlaps with that of an earlier one stops it: its segments could
// otherwise be placed before those of the earlier write.
Status Incoming::post_segments(DataPath& data_path) {
  for (size_t i = 0; i < waiting_.size() && segments_busy_ < segments_ahead(segment_bytes_); ++i) {
    Item& item = waiting_[i];
    if (item.posted < item.segments && overlaps_earlier(i)) return Status::ok();
    while (item.posted < item.segments && segments_busy_ < segments_ahead(segment_bytes_)) {
      const size_t offset = item.posted * segment_bytes_;
      const uint64_t number = item.first_segment + item.posted;
      const Result<bool> started = data_path.receive(kSegmentTag | number, item.place + offset,
                                                     std::min(segment_bytes_, item.bytes - offset),
                                                     operation_id(Operation::kSegmentReceived, number));
      if (!started.is_ok()) return started.status();
      if (!started.value()) {
        starved_ = true;
        return Status::ok();
      }
      ++item.posted;
      ++segments_busy_;
    }
  }
  return Status::ok();
}

// Messages have neither place nor bytes, and overlap with nothing.
bool Incoming::overlaps_earlier(size_t index) const {
  const Item& item = waiting_[index];
  return std::any_of(
      waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(index), [&item](const Item& earlier) {
        return earlier.place < item.place + item.bytes && item.place < earlier.place + earlier.bytes;
      });
}

// Frames may arrive in any order. They are taken in the order of their numbers, as far as they are there
// without a gap. The slot is released before its frame is taken: a receive for it is posted only by
// post(), so its buffer is still untouched.
Status Incoming::on_frame(uint64_t number, size_t bytes, FrameSink& sink) {
  Slot& slot = slots_[number % kSlots];
  if (number < next_ || number >= posted_ || !slot.posted || slot.bytes != 0) {
    return {Code::kInternal, "a frame was received twice"};
  }
  if (bytes < sizeof(FrameHeader))
    return {Code::kLink, "malformed frame: of " + std::to_string(bytes) + " bytes"};
  slot.bytes = bytes;
  while (next_ < posted_ && slots_[next_ % kSlots].bytes != 0) {
    const size_t length = slots_[next_ % kSlots].bytes;
    slots_[next_ % kSlots] = {};
    HDT_RETURN_IF_ERROR(take({buffer_of(next_), length}, sink));
  }
  return Status::ok();
}

// 1. Checks the frame by itself, and that the probe is the first frame and no other.
// 2. Takes note of what the peer has taken of ours.
// 3. kTaken has no delivery. Every other frame becomes an item, of which a peer that keeps to the window
//    has at most kFrameWindow.
// 4. A write's place is checked. Then whatever is complete is delivered.
Status Incoming::take(std::span<const std::byte> frame, FrameSink& sink) {
  FrameHeader header;
  std::memcpy(&header, frame.data(), sizeof header);
  HDT_RETURN_IF_ERROR(check_frame(header, frame.size()));
  if ((header.type == FrameType::kProbe) != (next_ == 0)) {
    return {Code::kLink, "malformed frame: a connection begins with a probe, and has one"};
  }
  HDT_RETURN_IF_ERROR(sink.on_taken(header.taken));
  const uint64_t number = next_++;
  if (header.type == FrameType::kTaken) return Status::ok();
  if (waiting_.size() >= kFrameWindow) return {Code::kLink, "malformed frame: more than the window allows"};
  Item& item = waiting_.emplace_back();
  item.number = number;
  item.type = header.type;
  const std::span<const std::byte> body = frame.subspan(sizeof header);
  if (header.type == FrameType::kMessage) item.content.assign(body.begin(), body.end());
  if (header.type == FrameType::kWrite) HDT_RETURN_IF_ERROR(begin_write(header, body, item, sink));
  deliver_ready(sink);
  return Status::ok();
}

// Short payload is copied out of the frame, not to its place: an earlier write to the same bytes may not
// be complete.
Status Incoming::begin_write(const FrameHeader& header, std::span<const std::byte> body, Item& item,
                             FrameSink& sink) {
  if (header.payload_bytes > 0) {
    item.place = sink.locate(header.region, header.offset, header.payload_bytes);
    if (item.place == nullptr) {
      return {Code::kLink, "the peer wrote outside of registered memory (" +
                               std::to_string(header.payload_bytes) + " bytes at offset " +
                               std::to_string(header.offset) + ")"};
    }
  }
  std::memcpy(item.immediate.data(), body.data(), item.immediate.size());
  item.bytes = header.payload_bytes;
  item.region = header.region;
  item.segments = segments_of(item.bytes, segment_bytes_);
  item.first_segment = next_segment_;
  next_segment_ += item.segments;
  if (item.segments == 0) {
    const std::span<const std::byte> payload = body.subspan(kImmediateBytes);
    item.content.assign(payload.begin(), payload.end());
  }
  return Status::ok();
}

// Only segments with a posted receive can arrive, so the item is found among those that wait. A segment
// that is shorter than announced would leave a hole; a longer one is an error of the library.
Status Incoming::on_segment(uint64_t number, size_t bytes, FrameSink& sink) {
  for (Item& item : waiting_) {
    if (number < item.first_segment || number >= item.first_segment + item.posted) continue;
    const size_t offset = (number - item.first_segment) * segment_bytes_;
    if (bytes != std::min(segment_bytes_, item.bytes - offset)) {
      return {Code::kLink, "malformed frame: a segment of " + std::to_string(bytes) + " bytes"};
    }
    ++item.arrived;
    --segments_busy_;
    deliver_ready(sink);
    return Status::ok();
  }
  return {Code::kInternal, "a segment was received twice"};
}

// The item leaves the queue before it is delivered, so taken() is right if the sink sends something.
void Incoming::deliver_ready(FrameSink& sink) {
  while (!waiting_.empty() && waiting_.front().arrived == waiting_.front().segments) {
    const Item item = std::move(waiting_.front());
    waiting_.pop_front();
    ++delivered_;
    if (item.type == FrameType::kProbe) {
      sink.on_probe();
    } else if (item.type == FrameType::kMessage) {
      sink.on_message(item.content);
    } else {
      if (!item.content.empty()) std::memcpy(item.place, item.content.data(), item.bytes);
      sink.on_written(item.immediate, {item.place, item.bytes});
    }
  }
}

// A write that waits may have receives posted, or short payload that is still to be copied to its place.
bool Incoming::inside_write_to(uint64_t region) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [region](const Item& item) {
    return item.type == FrameType::kWrite && item.bytes > 0 && item.region == region;
  });
}

}  // namespace hdt::transport::tagged
