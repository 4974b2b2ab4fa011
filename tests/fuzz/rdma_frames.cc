// rdma_frames.cc: what comes over an RDMA connection (transports/rdma): the hello in rdma_cm's private
// data, frames in receive slots, and region keys. The first byte says which.
#include <algorithm>

#include "tests/fuzz/target.h"
#include "transports/rdma/frame.h"
#include "transports/rdma/region_key.h"

namespace hdt::transport::rdma::fuzz_rdma_frames {

using fuzz::Bytes;
using fuzz::Choices;

bool take_hello(std::span<const std::byte> bytes) {
  const auto read = to_hello(bytes);
  if (!read.is_ok()) return false;
  const Hello& hello = read.value();
  HDT_HOLDS(hello.nic_slot < kMaxNics && hello.receive_slots >= kLeastReceiveSlots);
  HDT_HOLDS(std::memcmp(&hello, bytes.data(), sizeof hello) == 0);
  return true;
}

// A row of frames, as a connection takes them: how much of a message is kept never exceeds the longest one.
bool take_frames(Choices input) {
  const auto slots = std::max(kLeastReceiveSlots, input.get<uint16_t>());
  size_t partial = 0;
  bool any = false;
  while (!input.empty()) {
    const size_t length = input.get<uint16_t>() % (kSlotBytes + 1);
    const auto frame = input.bytes(length);
    const auto read = to_frame(frame, slots, partial);
    if (!read.is_ok()) return any;
    const FrameHeader& header = read.value();
    HDT_HOLDS(frame.size() >= sizeof header && header.credits <= slots && header.reserved == 0);
    const size_t body = frame.size() - sizeof header;
    if (header.type == FrameType::kMessage) {
      HDT_HOLDS(body == header.bytes && body > 0);
      partial += body;
      HDT_HOLDS(partial <= kMaxMessageBytes);
      if (header.more == 0) partial = 0;
    } else if (header.type == FrameType::kWritten) {
      HDT_HOLDS(body == kImmediateBytes && header.bytes <= kMaxWriteBytes && partial == 0);
    } else {
      HDT_HOLDS(body == 0 && (header.type == FrameType::kCredits || header.type == FrameType::kGoodbye));
    }
    any = true;
  }
  return any;
}

bool take_key(std::span<const std::byte> bytes) {
  RegionKey region{};
  std::memcpy(region.bytes.data(), bytes.data(), std::min(bytes.size(), region.bytes.size()));
  PackedKey key;
  if (!from_region_key(region, key)) return false;
  HDT_HOLDS(to_region_key(key).bytes == region.bytes);
  return true;
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  switch (choices.get<uint8_t>() % 3) {
    case 0:
      return take_hello(choices.rest());
    case 1:
      return take_frames(choices);
    default:
      return take_key(choices.rest());
  }
}

template <typename T>
void append(Bytes& all, const T& value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  all.insert(all.end(), bytes.begin(), bytes.end());
}

void append_frame(Bytes& all, FrameHeader header, size_t body) {
  append(all, static_cast<uint16_t>(sizeof header + body));
  append(all, header);
  all.resize(all.size() + body);
}

std::vector<Bytes> seeds() {
  Bytes hello = {std::byte{0}}, frames = {std::byte{1}}, key = {std::byte{2}};
  append(hello, Hello{});
  PackedKey packed;
  packed.page_offset = 64;
  packed.keys[0] = 77;
  append(key, to_region_key(packed));
  append(frames, kReceiveSlots);
  FrameHeader header;
  header.more = 1;
  header.bytes = 100;
  append_frame(frames, header, 100);
  header.more = 0;
  append_frame(frames, header, 100);
  header.type = FrameType::kCredits;
  header.credits = 3;
  append_frame(frames, header, 0);
  header.type = FrameType::kWritten;
  header.region = 77;
  append_frame(frames, header, kImmediateBytes);
  header.type = FrameType::kGoodbye;
  append_frame(frames, header, 0);
  return {hello, frames, key};
}

// One frame alone.
Bytes one_frame(const FrameHeader& header, size_t body) {
  Bytes all = {std::byte{1}};
  append(all, kReceiveSlots);
  append_frame(all, header, body);
  return all;
}

std::vector<Bytes> spoilt() {
  const auto hello = [](auto change) {
    Hello changed;
    change(changed);
    Bytes all = {std::byte{0}};
    append(all, changed);
    return all;
  };
  const auto frame = [](size_t body, auto change) {
    FrameHeader header;
    header.bytes = static_cast<uint32_t>(body);
    change(header);
    return one_frame(header, body);
  };
  std::vector<Bytes> all = {{std::byte{0}},
                            hello([](Hello& h) { h.magic += 1; }),
                            hello([](Hello& h) { h.version += 1; }),
                            hello([](Hello& h) { h.nic_slot = kMaxNics; }),
                            hello([](Hello& h) { h.receive_slots = kLeastReceiveSlots - 1; }),
                            hello([](Hello& h) { h.slot_bytes += 1; }),
                            hello([](Hello& h) { h.reserved = 1; }),
                            frame(1, [](FrameHeader& h) { h.bytes = 2; }),
                            frame(1, [](FrameHeader& h) { h.more = 2; }),
                            frame(1, [](FrameHeader& h) { h.reserved = 1; }),
                            frame(1, [](FrameHeader& h) { h.credits = kReceiveSlots + 1; }),
                            frame(kImmediateBytes - 1, [](FrameHeader& h) { h.type = FrameType::kWritten; }),
                            frame(1, [](FrameHeader& h) { h.type = FrameType::kCredits; }),
                            frame(1, [](FrameHeader& h) { h.type = FrameType::kGoodbye; }),
                            frame(0, [](FrameHeader& h) { h.type = static_cast<FrameType>(5); })};
  Bytes shorter = {std::byte{1}};
  append(shorter, kReceiveSlots);
  append(shorter, uint16_t{3});
  append(shorter, FrameHeader{});
  all.push_back(shorter);
  return all;
}

HDT_FUZZ_TARGET(rdma_frames, take, seeds, spoilt)

}  // namespace hdt::transport::rdma::fuzz_rdma_frames
