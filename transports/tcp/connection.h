// connection.h: one TCP connection of a device: its life (connecting, open, finished) and its two halves.
#pragma once

#include <sys/epoll.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transports/net/event_loop.h"
#include "transports/net/linger.h"
#include "transports/net/socket.h"
#include "transports/secured_connection.h"
#include "transports/support/message_arena.h"
#include "transports/tcp/domain.h"
#include "transports/tcp/frame_reader.h"
#include "transports/tcp/frame_writer.h"
#include "transports/tcp/options.h"
#include "transports/tcp/path_test.h"
#include "transports/tcp/sealed_reader.h"
#include "transports/tcp/secure_start.h"
#include "transports/transport.h"
#include "transports/tried_path.h"

namespace hdt::transport::tcp {

class TcpConnection;

// What a device's connections share.
struct DeviceState {
  DeviceState(std::shared_ptr<Domain> shared, Options with, DeviceInfo info)
      : options(with), nic(std::move(info)), domain(std::move(shared)) {}
  // Empty: the routing table decides.
  std::string bound_device() const { return options.bind_device ? nic.name : ""; }

  const Options options;
  const DeviceInfo nic;
  EventLoop loop;
  LingerSet lingering{loop};
  std::shared_ptr<Domain> domain;
  MessageArena arena;
  std::vector<Completion> pending;        // reported by the next poll()
  std::vector<TcpConnection*> unflushed;  // have new frames queued
  std::vector<TcpConnection*> unread;     // have read what they have not looked at
  bool messages_pending = false;          // some of `pending` lie in the arena
  size_t lost = 0;  // connections that have ended without kClosed: there was no memory for it
};

class TcpConnection final : public Connection,
                            public TriedPath,
                            public SecuredConnection,
                            private EventSource,
                            private FrameSink,
                            private Stranger {
 public:
  explicit TcpConnection(DeviceState& device) : device_(device) {}
  ~TcpConnection() override;

  // Starts connecting. A refusal by the system is reported as kClosed, like one by the peer.
  Status connect(const SocketAddress& local, const SocketAddress& remote, int64_t timeout_ms);
  Status accept(Fd fd);
  void flush();
  // Looks at what was read before (look_again_soon).
  void read_on();
  void on_withdrawn(uint64_t region, const RegionTable* of);
  bool finished() const { return phase_ == Phase::kFinished; }
  // Something threw: the connection ends. Takes no memory, so that kClosed comes later: report_lost().
  void on_failure() override;
  void report_lost();

  Status admit(const PeerName& peer) override;
  Status send(std::span<const std::byte> message, uint64_t token) override;
  Status write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
               const Immediate& immediate, uint64_t token) override;
  size_t write_window() const override;
  void close() override;
  void abandon() override;
  Progress progress() const override;
  std::string narrowed() const override;
  uint32_t largest_packet() const override { return test_.largest(); }
  const secure::Binding* binding() const override { return sealed_ != nullptr ? &binding_ : nullptr; }
  std::string local_address() const override { return local_address_; }
  std::string remote_address() const override { return remote_address_; }

 private:
  // kTrying: connected, and finds out whether large packets pass (path_test.h), and then exchanges keys where
  // it is to be protected (secure_start.h), before the owner is told. An accepted connection is open
  // meanwhile, but what its owner sends waits. kClosing: it was closed in order, and waits until the kernel
  // has read the memory of what was handed over.
  enum class Phase { kConnecting, kTrying, kOpen, kClosing, kFinished };

  void on_event(uint32_t epoll_events) override;
  void on_deadline() override;
  std::byte* locate(uint64_t region, uint64_t offset, size_t bytes) override;
  void on_message(std::span<const std::byte> message) override;
  void on_written(const Immediate& immediate, std::span<const std::byte> placed) override;

  void on_path(const FrameHeader& header) override;
  bool on_secure(const FrameHeader& header, std::span<const std::byte> content) override;
  void on_turned_out(const Status& why) override;

  Status dial();
  void on_connect_result(int error);
  // The path test is under way.
  bool trying() const { return phase_ == Phase::kTrying || (phase_ == Phase::kOpen && !tried_); }
  // The owner's frames may come and go.
  bool settled() const { return phase_ == Phase::kOpen && tried_ && secured_; }
  bool start_pending() const { return start_ != nullptr && start_->pending(); }
  FrameReader::Outcome read_frames();
  void pump_test();
  void begin_securing();
  void pump_start();
  void on_secured();
  void open_up();
  void refuse(const Status& why);
  void keep_path() const;
  void on_stuck(const PathLimit& limit);
  void look_again();
  // Until the attempt to connect ends.
  int64_t left_ms() const { return connect_until_.remaining_ns() / kNsPerMs + 1; }
  void look_again_soon();
  void read_errors();
  void receive();
  void on_goodbye();
  void queued_something();
  void report(Completion::Kind kind);
  void report_sent(const Status& status);
  void watch(uint32_t epoll_events);
  void end_in_order();
  static Status closed_here();
  // Reports what was under way and kClosed; touches no foreign memory afterwards.
  void finish(const Status& reason, const Status& given_up, bool in_order);
  void fail(const std::string& reason);

  DeviceState& device_;
  Phase phase_ = Phase::kConnecting;
  RegionGrants::Table granted_;  // to the peer; null: it is a stranger
  Fd fd_;
  uint32_t watched_ = 0;
  bool unflushed_ = false;
  bool unread_ = false;
  bool closed_ = false;  // kClosed is reported
  bool lost_ = false;    // or is to be, when there is memory
  bool accepted_ = false;
  int64_t connect_timeout_ms_ = 0;
  Deadline connect_until_ = Deadline::never();
  SocketAddress local_, remote_;    // of one that was dialled
  std::optional<PathLimit> limit_;  // why packets are smaller than the NIC allows
  PathTest test_;
  bool tried_ = false;
  bool out_of_order_ = false;           // the peer mixed the test with other frames
  bool secured_ = true;                 // or needs no protection
  std::unique_ptr<SecureStart> start_;  // until it is over
  std::optional<Status> refusal_;       // of what the peer sent in place of it
  secure::Binding binding_{};
  std::string local_address_;
  std::string remote_address_;
  FrameWriter writer_;
  FrameReader reader_;
  std::unique_ptr<SealedReader> sealed_;  // takes the place of reader_
  std::vector<FrameWriter::Sent> sent_;
};

}  // namespace hdt::transport::tcp
