// connection.h: one TCP connection of a device: its life (connecting, open, finished) and its two halves.
#pragma once

#include <sys/epoll.h>

#include <memory>
#include <string>
#include <vector>

#include "transports/message_arena.h"
#include "transports/tcp/domain.h"
#include "transports/tcp/event_loop.h"
#include "transports/tcp/frame_reader.h"
#include "transports/tcp/frame_writer.h"
#include "transports/tcp/linger.h"
#include "transports/tcp/options.h"
#include "transports/tcp/socket.h"
#include "transports/transport.h"

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
};

class TcpConnection final : public Connection, private EventSource, private FrameSink {
 public:
  explicit TcpConnection(DeviceState& device) : device_(device) {}
  ~TcpConnection() override;

  // Starts connecting. A refusal by the system is reported as kClosed, like one by the peer.
  Status connect(const SocketAddress& local, const SocketAddress& remote, int64_t timeout_ms);
  Status accept(Fd fd);
  void flush();
  void on_deregistered(uint64_t region);
  bool finished() const { return phase_ == Phase::kFinished; }

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
  // kClosing: it was closed in order, and waits until the kernel has read the memory of what was handed over.
  enum class Phase { kConnecting, kOpen, kClosing, kFinished };

  void on_event(uint32_t epoll_events) override;
  void on_deadline() override;
  std::byte* locate(uint64_t region, uint64_t offset, size_t bytes) override;
  void on_message(std::span<const std::byte> message) override;
  void on_written(const Immediate& immediate, std::span<const std::byte> placed) override;

  void on_connect_result(int error);
  void read_errors();
  void receive();
  void queued_something();
  void report(Completion::Kind kind);
  void report_sent(const Status& status);
  void watch(uint32_t epoll_events);
  // Reports what was under way and kClosed; touches no foreign memory afterwards.
  void finish(const Status& reason, const Status& given_up, bool in_order);
  void fail(const std::string& reason);

  DeviceState& device_;
  Phase phase_ = Phase::kConnecting;
  Fd fd_;
  uint32_t watched_ = 0;
  bool unflushed_ = false;
  int64_t connect_timeout_ms_ = 0;
  std::string local_address_;
  std::string remote_address_;
  FrameWriter writer_;
  FrameReader reader_;
  std::vector<FrameWriter::Sent> sent_;
};

}  // namespace hdt::transport::tcp
