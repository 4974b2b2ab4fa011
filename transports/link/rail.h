// rail.h: one connection of a link, with what is under way on it and its counters.
#pragma once

#include <deque>
#include <string>

#include "transports/link/link.h"
#include "transports/link/outbox.h"

namespace hdt::transport {

class Rail {
 public:
  explicit Rail(Connection* connection) : connection_(connection) {
    status_.local_address = connection->local_address();
    status_.remote_address = connection->remote_address();
  }

  Connection* connection() const { return connection_; }
  bool open() const { return status_.open; }
  bool has_room() const { return status_.open && connection_->write_window() > 0; }
  uint64_t bytes_in_flight() const { return status_.bytes_in_flight; }
  const RailStatus& status() const { return status_; }
  std::string describe() const { return "rail " + status_.local_address + " -> " + status_.remote_address; }

  Status write(const Outbox::Chunk& chunk) {
    HDT_RETURN_IF_ERROR(connection_->write(chunk.data, chunk.header.bytes(), chunk.region,
                                           chunk.region_offset, to_immediate(chunk.header),
                                           chunk.header.message_id));
    in_flight_.push_back(chunk.header.bytes());
    status_.bytes_in_flight += chunk.header.bytes();
    return Status::ok();
  }

  Status send(std::span<const std::byte> message) {
    HDT_RETURN_IF_ERROR(connection_->send(message, 0));
    ++status_.messages_out;
    return Status::ok();
  }

  // The oldest chunk under way has left (completions of a connection come in order).
  void on_chunk_sent() {
    const uint64_t bytes = in_flight_.front();
    in_flight_.pop_front();
    status_.bytes_in_flight -= bytes;
    status_.bytes_out += bytes;
    ++status_.writes_out;
  }

  void on_chunk_arrived(uint64_t bytes) {
    status_.bytes_in += bytes;
    ++status_.writes_in;
  }

  void on_message() { ++status_.messages_in; }

  void on_closed() {
    status_.open = false;
    status_.bytes_in_flight = 0;
    in_flight_.clear();
    connection_ = nullptr;
  }

 private:
  Connection* connection_;
  RailStatus status_;
  std::deque<uint64_t> in_flight_;
};

}  // namespace hdt::transport
