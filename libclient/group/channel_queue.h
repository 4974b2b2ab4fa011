// channel_queue.h: this rank's sends and receives. Messages of one direction between two ranks are matched in
// call order and travel as chunks through the rings of ipc/segment.h: on one node the two ranks share a ring,
// between nodes the daemons carry chunks from the sender's to the receiver's. Not thread-safe: the
// communicator's lock is held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "libclient/common/node_access.h"
#include "libclient/common/operation.h"

namespace hdt::client {

class ChannelQueue {
 public:
  explicit ChannelQueue(const NodeAccess& access) : access_(access) {}

  void push_send(uint32_t peer, const void* data, uint64_t bytes, std::shared_ptr<Operation> operation);
  void push_recv(uint32_t peer, void* data, uint64_t bytes, std::shared_ptr<Operation> operation);
  // Does what can be done without waiting. True if anything was done.
  bool progress();
  bool empty() const;
  // The operation whose deadline comes first, with words for what it waits for.
  struct Waiting {
    const Operation* operation;
    uint32_t peer;
    std::string what;
  };
  std::optional<Waiting> most_urgent() const;
  void fail_all(const Status& status);

 private:
  struct Message {
    std::byte* data;
    uint64_t bytes;
    uint64_t number;
    std::shared_ptr<Operation> operation;
    uint64_t record;  // ipc/recorder.h
    uint64_t moved = 0;
    bool started = false;  // a message of 0 bytes is one empty chunk
  };
  struct Stream {
    std::deque<Message> messages;
    uint64_t next_number = 0;
  };

  bool send_some(uint32_t peer, Stream& stream);
  bool recv_some(uint32_t peer, Stream& stream);
  bool is_local(uint32_t peer) const { return access_.order.node_of_rank[peer] == access_.node; }
  uint32_t local_of(uint32_t peer) const;
  void call_attention(uint32_t channel);
  void push(session::Recorded kind, uint32_t peer, std::byte* data, uint64_t bytes,
            std::shared_ptr<Operation> operation);

  const NodeAccess& access_;
  std::map<uint32_t, Stream> sends_;  // by peer; streams stay, they count messages
  std::map<uint32_t, Stream> recvs_;
};

}  // namespace hdt::client
