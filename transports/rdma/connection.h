// connection.h: one reliable connection: its life, from rdma_cm's handshake to the drained queue pair, and
// what its frames mean. handshake.cc has the beginning, connection.cc everything after it.
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

// The state that the connections of one device share with it. Owned by the RdmaDevice, which outlives its
// connections; used on the device's thread only.
struct DeviceState {
  DeviceState(std::shared_ptr<Domain> shared, Nic& adapter)
      : domain(std::move(shared)), nic(adapter), queues(adapter) {}

  std::shared_ptr<Domain> domain;
  Nic& nic;
  tcp::EventLoop loop;
  CompletionQueues queues;
  rdma_event_channel* channel = nullptr;  // of rdma_cm; owned by the device
  tcp::SocketAddress local;               // of the device, port 0
  MessageArena arena;
  std::vector<Completion> pending;         // reported by the next poll()
  std::vector<RdmaConnection*> unflushed;  // have something to post; each is listed once
  std::vector<RdmaConnection*> holding;    // strangers that have handed over a message in this round
  std::vector<RdmaConnection*> discarded;  // ended before their owner heard of them; freed by poll()
  std::unordered_map<uint32_t, RdmaConnection*> by_number;  // have a queue pair, so requests may complete
  uint32_t next_number = 1;
};

// Owned by its RdmaDevice, which makes it, polls it and frees it; used on the device's thread.
//
// Invariants: everything is reported into device_.pending. Nothing is reported after kClosed. kClosed is
// reported only when the adapter has handed back every request, or when its queue pair is destroyed;
// either way the adapter touches no memory of this connection after that. While it is in by_number,
// completions that carry its number reach it.
class RdmaConnection final : public Connection, private tcp::EventSource, private Stranger {
 public:
  explicit RdmaConnection(DeviceState& device);
  ~RdmaConnection() override;

  // Starts to connect; kConnected or kClosed follows within `timeout_ms`. kSystem if rdma_cm refuses at
  // once.
  Status connect(const tcp::SocketAddress& remote, int64_t timeout_ms);
  // Takes a connect request: makes the queue pair and replies. The request's id belongs to this connection
  // from now on, also after a failure. On failure the peer was rejected as far as possible, and nothing
  // was reported.
  Status accept(const CmEvent& request);
  // The device passes on what concerns this connection: an event of rdma_cm, a completion with its number,
  // and the request of the next poll() to post what is queued.
  void on_cm_event(const CmEvent& event);
  void on_completion(const ibv_wc& completion);
  void flush();
  // Ends the connection with kLink and this reason.
  void fail(const std::string& reason);
  // The adapter is gone: nothing will complete any more, so the connection ends without draining.
  void on_removal();
  // After a change of GIDs: ends the connection if the address that it was made from is not where it was.
  void check_gid();
  uint32_t qp_number() const { return pair_.number(); }

  // Handles frames that were held back: of a stranger up to its next message, of an admitted peer all of
  // them. Called by the next poll() for connections in `holding`.
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
  // kConnecting: dialled, until the reply has been handled. kAccepting: replied, until the peer confirms;
  // the owner does not know of it yet. kOpen. kClosing: closed here, the goodbye is on its way. kDraining:
  // the queue pair is in ERR and hands back what it had. kFinished: kClosed was reported, or the
  // connection was discarded.
  enum class Phase { kConnecting, kAccepting, kOpen, kClosing, kDraining, kFinished };

  void on_event(uint32_t) override {}
  void on_deadline() override;

  // The steps of a dialer: address, path, request, reply (handshake.cc).
  void resolve();
  void start_request();
  void on_reply(const CmEvent& event);
  void on_rejected(const CmEvent& event);
  // The parts that both ends need: the peer's hello, the queue pair, and what is sent to the peer.
  Status read_hello(const CmEvent& event);
  Status open_pair();
  rdma_conn_param parameters() const;
  // The handshake is over: reports kConnected or kAccepted.
  void opened(Completion::Kind kind);

  void on_turned_out(const Status& why) override;
  // A receive has completed. A frame of a stranger waits in its slot while the owner handles the message
  // before it.
  void on_received(uint32_t slot, uint32_t bytes);
  // Handles the frame in a slot, then posts the slot anew.
  void on_frame(uint32_t slot, uint32_t bytes);
  Status take_frame(std::span<const std::byte> frame);
  Status take_message(const FrameHeader& header, std::span<const std::byte> body);
  Status take_written(const FrameHeader& header, std::span<const std::byte> body);
  // True if the adapter has handed back everything.
  bool drained() const { return send_.requests_under_way() == 0 && receive_.under_way() == 0; }
  // Begins the end: `reason` for kClosed, `given_up` for what is not finished. No effect if it has begun.
  void drain(const Status& reason, const Status& given_up);
  // Releases everything, and reports what is not finished and kClosed.
  void finish();
  void refuse(const Status& reason);
  // Asks for flush() at the next poll().
  void queued_something();
  // Appends a completion; the caller fills in the rest. report_sent() makes kSent of everything in sent_.
  void report(Completion::Kind kind);
  void report_sent(const Status& status);

  DeviceState& device_;
  Verbs& verbs_;
  const uint32_t number_;  // part of the id of every request; unique in its device
  Phase phase_ = Phase::kConnecting;
  rdma_cm_id* id_ = nullptr;  // owned; null before connect() or accept() and after finish()
  QueuePair pair_;
  SendQueue send_;
  ReceiveQueue receive_;
  Hello peer_;                   // checked; valid once the peer's hello has arrived
  Hello hello_;                  // of this end; rdma_cm reads it from here
  bool unflushed_ = false;       // is in device_.unflushed
  bool goodbye_posted_ = false;  // the goodbye is with the adapter
  bool deliver_ = true;          // messages and writes that still arrive are reported
  tcp::SocketAddress remote_;
  int64_t connect_timeout_ms_ = 0;           // for the text of an error
  uint64_t received_ = 0;                    // frames; a measure of progress
  std::vector<std::byte> partial_;           // the pieces of a message that have arrived
  std::shared_ptr<Domain::Grants> granted_;  // to the peer; null: it is a stranger
  size_t stranger_messages_ = 0;             // complete messages, while it is a stranger
  bool looked_at_ = false;                   // as a stranger it has handed over a message in this round
  std::deque<std::pair<uint32_t, uint32_t>> held_;  // slots and lengths of frames that wait, in order
  std::vector<SendQueue::Sent> sent_;               // scratch; empty between calls
  Status reason_;                                   // of the end, from kClosing on: for kClosed
  Status given_up_;                                 // the same: for what is not finished
  std::string local_address_;
  std::string remote_address_;
};

}  // namespace hdt::transport::rdma
