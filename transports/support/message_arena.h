// message_arena.h: keeps the bytes of messages that one poll() reports valid until the next poll()
// (Completion::message). It is a list of blocks of 64 KiB in which messages are laid one behind the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "transports/transport.h"

namespace hdt::transport {

// One per device, used on its thread.
class MessageArena {
 public:
  // Copies `message`, of at most kMaxMessageBytes, and returns the copy. It stays valid until reset().
  std::span<const std::byte> copy(std::span<const std::byte> message) {
    if (blocks_.empty() || used_ + message.size() > kBlockBytes) {
      blocks_.push_back(std::make_unique<std::byte[]>(kBlockBytes));
      used_ = 0;
    }
    std::byte* place = blocks_.back().get() + used_;
    std::memcpy(place, message.data(), message.size());
    used_ += message.size();
    return {place, message.size()};
  }

  // Ends the life of all copies; called at the begin of a poll(). One block is kept, so that a steady flow of
  // few messages allocates nothing.
  void reset() {
    if (blocks_.size() > 1) blocks_.resize(1);
    used_ = 0;
  }

 private:
  static constexpr size_t kBlockBytes = 64 << 10;
  static_assert(kBlockBytes >= kMaxMessageBytes);
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  size_t used_ = 0;  // bytes of the last block
};

}  // namespace hdt::transport
