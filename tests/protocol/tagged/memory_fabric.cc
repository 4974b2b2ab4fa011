// memory_fabric.cc: see memory_fabric.h.
#include "tests/protocol/tagged/memory_fabric.h"

#include <cstring>

namespace hdt::transport::tagged {

Result<std::unique_ptr<Channel>> MemoryFabric::open_channel() {
  return std::unique_ptr<Channel>(std::make_unique<MemoryChannel>(exchange_));
}

MemoryChannel::MemoryChannel(std::shared_ptr<MemoryFabric::Exchange> exchange)
    : exchange_(std::move(exchange)) {
  static uint64_t next = 0;
  id_ = ++next;
  exchange_->emplace(id_, this);
}

MemoryChannel::~MemoryChannel() { exchange_->erase(id_); }

std::vector<std::byte> MemoryChannel::address() const {
  std::vector<std::byte> bytes(sizeof id_);
  std::memcpy(bytes.data(), &id_, sizeof id_);
  return bytes;
}

Status MemoryChannel::connect(std::span<const std::byte> peer) {
  if (peer.size() != sizeof peer_) return {Code::kLink, "malformed address"};
  std::memcpy(&peer_, peer.data(), sizeof peer_);
  return Status::ok();
}

Result<bool> MemoryChannel::send(uint64_t tag, const void* data, size_t bytes, uint64_t id) {
  if (sends_.size() >= kRoom) return false;
  sends_.push_back({tag, static_cast<const std::byte*>(data), bytes, id});
  return true;
}

Result<bool> MemoryChannel::receive(uint64_t tag, void* place, size_t bytes, uint64_t id) {
  if (receives_.size() >= kRoom) return false;
  receives_.emplace(tag, Posted{static_cast<std::byte*>(place), bytes, id});
  return true;
}

// The last of what is sent goes first: nothing above may rely on the order.
void MemoryChannel::move_sends() {
  const auto peer = exchange_->find(peer_);
  if (peer == exchange_->end()) return;
  for (size_t i = sends_.size(); i-- > 0;) {
    const Sending& sending = sends_[i];
    const auto receive = peer->second->receives_.find(sending.tag);
    if (receive == peer->second->receives_.end()) continue;
    const Posted posted = receive->second;
    peer->second->receives_.erase(receive);
    const bool fits = sending.bytes <= posted.bytes;
    if (fits) std::memcpy(posted.place, sending.data, sending.bytes);
    peer->second->finished_.push_back(
        {posted.id, sending.bytes, fits ? Status::ok() : Status(Code::kLink, "truncated")});
    finished_.push_back({sending.id, sending.bytes, {}});
    sends_.erase(sends_.begin() + static_cast<ptrdiff_t>(i));
  }
}

Status MemoryChannel::poll(std::vector<Finished>& finished) {
  for (const auto& [id, channel] : *exchange_) {
    if (channel == this || channel->peer_ == id_) channel->move_sends();
  }
  finished.insert(finished.end(), finished_.begin(), finished_.end());
  finished_.clear();
  return failed_ ? Status(Code::kLink, "the cable was pulled") : Status::ok();
}

}  // namespace hdt::transport::tagged
