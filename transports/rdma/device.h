// device.h: an address of an RDMA adapter as a Device: it listens, connects, and polls its connections.
// One EventLoop holds the descriptors of the libraries: rdma_cm's events, the completion channel and the
// adapter's asynchronous events.
#pragma once

#include <memory>
#include <unordered_map>

#include "transports/rdma/connection.h"
#include "transports/transport.h"

namespace hdt::transport::rdma {

// Made by the backend's open(), owned by the engine and used on its thread. It owns its connections, the
// event channel of rdma_cm and its completion queues; the adapter (Nic) belongs to the Domain.
//
// While completions keep coming, poll() makes no system call. Only when a poll finds nothing does it ask
// the adapter for an event, so that event_fd() becomes readable.
class RdmaDevice final : public Device, private NicListener {
 public:
  // kNoBackend if the address has no RDMA adapter; kSystem if it cannot be opened.
  static Result<std::unique_ptr<Device>> open(std::shared_ptr<Domain> domain, const DeviceInfo& info);
  ~RdmaDevice() override;

  const DeviceInfo& info() const override { return info_; }
  Result<std::string> listen(uint16_t port) override;
  Result<Connection*> connect(const std::string& address, int64_t timeout_ms) override;
  Result<RegionKey> register_memory(void* base, size_t bytes, int fd) override;
  void deregister_memory(const RegionKey& key) override;
  Status grant(const RegionKey& key, const PeerName& peer) override;
  void revoke(const RegionKey& key, const PeerName& peer) override;
  bool poll(std::vector<Completion>& completions) override;
  int event_fd() const override { return state_.loop.fd(); }
  void release(Connection* connection) override;

 private:
  // A descriptor of a library in the event loop: calls a member function when it is readable.
  class Source final : public tcp::EventSource {
   public:
    Source(RdmaDevice& device, void (RdmaDevice::*on_readable)())
        : device_(device), on_readable_(on_readable) {}
    void on_event(uint32_t) override { (device_.*on_readable_)(); }
    void on_deadline() override {}

   private:
    RdmaDevice& device_;
    void (RdmaDevice::*on_readable_)();
  };

  RdmaDevice(std::shared_ptr<Domain> domain, Nic& nic, DeviceInfo info);
  // The parts of open() that may fail.
  Status start(const tcp::SocketAddress& local, uint8_t port);
  // The three descriptors are readable.
  void on_cm_readable();
  void on_completions_readable() { state_.queues.on_channel_event(); }
  void on_async_readable() { state_.nic.dispatch_async_events(); }
  void on_async_event(const AsyncEvent& event) override;
  // A peer asks to connect.
  void on_request(const CmEvent& event);
  void stop_listening();
  // Ends all connections of this device.
  void fail_all(const std::string& reason);
  // Handles completions; returns how many there were.
  size_t drain_completions();
  // Lets connections post what is queued.
  void flush_unflushed();
  // Lets strangers hand over their next message.
  void release_held();

  DeviceInfo info_;
  uint8_t port_ = 1;  // of the adapter, from 1
  DeviceState state_;
  Source cm_source_{*this, &RdmaDevice::on_cm_readable};
  Source completions_source_{*this, &RdmaDevice::on_completions_readable};
  Source async_source_{*this, &RdmaDevice::on_async_readable};
  rdma_cm_id* listener_ = nullptr;  // null: does not listen
  int busy_polls_ = 0;              // polls since the descriptors were looked at
  std::unordered_map<Connection*, std::unique_ptr<RdmaConnection>> connections_;
  std::vector<RdmaConnection*> flushing_;  // the lists that are worked on; empty between calls
  std::vector<RdmaConnection*> releasing_;
};

}  // namespace hdt::transport::rdma
