// connection.h: one reliable connection (RC queue pair): its life, from rdma_cm's handshake to the drained
// queue pair, and what its frames mean.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "transports/net/event_loop.h"
#include "transports/net/socket_address.h"
#include "transports/rdma/completion_queues.h"
#include "transports/rdma/queue_pair.h"
#include "transports/rdma/receive_queue.h"
#include "transports/rdma/send_queue.h"
#include "transports/support/message_arena.h"
#include "transports/transport.h"

namespace hdt::transport::rdma {

class RdmaConnection;

// What a device's connections share.
struct DeviceState {
  DeviceState(std::shared_ptr<Domain> shared, Nic& adapter)
      : domain(std::move(shared)), nic(adapter), queues(adapter) {}

  std::shared_ptr<Domain> domain;
  Nic& nic;
  tcp::EventLoop loop;
  CompletionQueues queues;
  rdma_event_channel* channel = nullptr;
  tcp::SocketAddress local;
  MessageArena arena;
  std::vector<Completion> pending;                          // reported by the next poll()
  std::vector<RdmaConnection*> unflushed;                   // have something new to send
  std::vector<RdmaConnection*> holding;                     // strangers with messages to be looked at
  std::vector<RdmaConnection*> discarded;                   // ended before anybody knew of them
  std::unordered_map<uint32_t, RdmaConnection*> by_number;  // those whose requests may complete
  uint32_t next_number = 1;
};

class RdmaConnection final : public Connection, private tcp::EventSource, private Stranger {
 public:
  explicit RdmaConnection(DeviceState& device);
  ~RdmaConnection() override;

  Status connect(const tcp::SocketAddress& remote, int64_t timeout_ms);
  // `id` is this connection's from now on, also after a failure.
  Status accept(const CmEvent& request);
  void on_cm_event(const CmEvent& event);
  void on_completion(const ibv_wc& completion);
  void flush();
  void fail(const std::string& reason);
  // The adapter is gone: nothing will complete any more.
  void on_removal();
  // Ends it if the address that it was made from is not where it was.
  void check_gid();
  uint32_t qp_number() const { return pair_.number(); }

  // One more message of a stranger is handed over, or of one that was a stranger all that is held back.
  void release_held();

  Status admit(const PeerName& peer) override;
  Status send(std::span<const std::byte> message, uint64_t token) override;
  Status write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
               const Immediate& immediate, uint64_t token) override;
  size_t write_window() const override;
  void close() override;
  void abandon() override;
  Progress progress() const override;
  std::string local_address() const override { return local_address_; }
  std::string remote_address() const override { return remote_address_; }

 private:
  // kClosing: the goodbye is on its way. kDraining: the queue pair is in its error state and hands back what
  // it had.
  enum class Phase { kConnecting, kAccepting, kOpen, kClosing, kDraining, kFinished };

  void on_event(uint32_t) override {}
  void on_deadline() override;

  void resolve();
  void start_request();
  void on_reply(const CmEvent& event);
  void on_rejected(const CmEvent& event);
  Status read_hello(const CmEvent& event);
  Status open_pair();
  rdma_conn_param parameters() const;
  void opened(Completion::Kind kind);

  void on_turned_out(const Status& why) override;
  // A frame of a stranger waits in its slot while the owner looks at the message before it.
  void on_received(uint32_t slot, uint32_t bytes);
  void on_frame(uint32_t slot, uint32_t bytes);
  Status take_frame(std::span<const std::byte> frame);
  Status take_message(const FrameHeader& header, std::span<const std::byte> body);
  Status take_written(const FrameHeader& header, std::span<const std::byte> body);
  bool drained() const { return send_.requests_under_way() == 0 && receive_.under_way() == 0; }
  void drain(const Status& reason, const Status& given_up);
  void finish();
  void refuse(const Status& reason);
  void queued_something();
  void report(Completion::Kind kind);
  void report_sent(const Status& status);

  DeviceState& device_;
  Verbs& verbs_;
  const uint32_t number_;
  Phase phase_ = Phase::kConnecting;
  rdma_cm_id* id_ = nullptr;
  QueuePair pair_;
  SendQueue send_;
  ReceiveQueue receive_;
  Hello peer_;
  Hello hello_;
  bool unflushed_ = false;
  bool goodbye_posted_ = false;
  bool deliver_ = true;  // what still comes is for the owner
  tcp::SocketAddress remote_;
  int64_t connect_timeout_ms_ = 0;
  uint64_t received_ = 0;
  std::vector<std::byte> partial_;           // pieces of a message
  std::shared_ptr<Domain::Grants> granted_;  // to the peer; null: it is a stranger
  size_t stranger_messages_ = 0;
  bool looked_at_ = false;                          // a message of it was handed over by this poll
  std::deque<std::pair<uint32_t, uint32_t>> held_;  // slots and lengths of frames that wait
  std::vector<SendQueue::Sent> sent_;
  Status reason_;
  Status given_up_;
  std::string local_address_;
  std::string remote_address_;
};

}  // namespace hdt::transport::rdma
