// message_arena.h: keeps the bytes of messages reported by one poll() valid until the next.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "transports/transport.h"

namespace hdt::transport {

class MessageArena {
 public:
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

  // One block is kept: a steady trickle of messages allocates nothing.
  void reset() {
    if (blocks_.size() > 1) blocks_.resize(1);
    used_ = 0;
  }

 private:
  static constexpr size_t kBlockBytes = 64 << 10;
  static_assert(kBlockBytes >= kMaxMessageBytes);
  std::vector<std::unique_ptr<std::byte[]>> blocks_;
  size_t used_ = 0;
};

}  // namespace hdt::transport
