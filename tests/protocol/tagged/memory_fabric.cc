// memory_fabric.cc: see memory_fabric.h.
#include "tests/protocol/tagged/memory_fabric.h"

#include <cstring>

namespace hdt::transport::tagged {

Result<std::unique_ptr<DataPath>> MemoryFabric::open_data_path() {
  return std::unique_ptr<DataPath>(std::make_unique<MemoryDataPath>(exchange_));
}

MemoryDataPath::MemoryDataPath(std::shared_ptr<MemoryFabric::Exchange> exchange)
    : exchange_(std::move(exchange)) {
  static uint64_t next = 0;
  id_ = ++next;
  exchange_->emplace(id_, this);
}

MemoryDataPath::~MemoryDataPath() { exchange_->erase(id_); }

std::vector<std::byte> MemoryDataPath::address() const {
  std::vector<std::byte> bytes(sizeof id_);
  std::memcpy(bytes.data(), &id_, sizeof id_);
  return bytes;
}

Status MemoryDataPath::connect(std::span<const std::byte> peer) {
  if (peer.size() != sizeof peer_) return {Code::kLink, "malformed address"};
  std::memcpy(&peer_, peer.data(), sizeof peer_);
  return Status::ok();
}

Result<bool> MemoryDataPath::send(uint64_t tag, const void* data, size_t bytes, uint64_t id) {
  if (sends_.size() >= kRoom) return false;
  sends_.push_back({tag, static_cast<const std::byte*>(data), bytes, id});
  return true;
}

Result<bool> MemoryDataPath::receive(uint64_t tag, void* place, size_t bytes, uint64_t id) {
  if (receives_.size() >= kRoom) return false;
  receives_.emplace(tag, Posted{static_cast<std::byte*>(place), bytes, id});
  return true;
}

// The last of what is sent goes first: nothing above may rely on the order.
void MemoryDataPath::move_sends() {
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

Status MemoryDataPath::poll(std::vector<Finished>& finished) {
  for (const auto& [id, data_path] : *exchange_) {
    if (data_path == this || data_path->peer_ == id_) data_path->move_sends();
  }
  finished.insert(finished.end(), finished_.begin(), finished_.end());
  finished_.clear();
  return failed_ ? Status(Code::kLink, "the cable was pulled") : Status::ok();
}

}  // namespace hdt::transport::tagged
