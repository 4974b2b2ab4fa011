// device.h: a device and the connections of a FakeNetwork.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/fake/state.h"
#include "transports/support/message_arena.h"
#include "transports/support/region_table.h"
#include "transports/transport.h"

namespace hdt::transport::fake {

class FakeConnection final : public Connection {
 public:
  FakeConnection(FakeDevice& device, std::string local, std::string remote, std::shared_ptr<Pipe> in,
                 std::shared_ptr<Pipe> out);
  ~FakeConnection() override;

  Status admit(const PeerName& peer) override;
  Status send(std::span<const std::byte> message, uint64_t token) override;
  Status write(const void* data, size_t bytes, const RegionKey& region, uint64_t offset,
               const Immediate& immediate, uint64_t token) override;
  size_t write_window() const override;
  void close() override;
  void abandon() override;
  Progress progress() const override;
  std::string local_address() const override { return local_; }
  std::string remote_address() const override { return remote_; }

  // The calls below are made with the network's mutex held.
  void open() { open_ = true; }
  // Delivers what is due. Returns true if anything happened.
  bool deliver();
  // Is there anything that a later poll will deliver?
  bool has_input() const { return !finished_ && (!in_->frames.empty() || in_->closed); }
  bool inside_write_to(uint64_t region, const RegionTable* of) const;
  bool finished() const { return finished_; }
  // Gives up what is under way to the peer, who learns `told_to_peer`.
  void finish(const Status& reason, const Status& given_up, const Status& told_to_peer);
  void fail(const std::string& reason);
  void refuse();
  // Both ends at once.
  void break_wire(const std::string& reason);

 private:
  Status check_open() const;
  // Why a stranger may not have sent the frame; empty: it may.
  std::string not_for_strangers(const Frame& frame);
  std::byte* locate(const Frame& frame) const;
  void post(Frame frame);
  // False: not all of it was placed (yet, or ever: then the connection is finished).
  bool place(Frame& frame, uint64_t& budget);
  void hand_over(const Frame& frame);
  void corrupt(const Frame& frame, const Faults& faults);
  void report_written(const Frame& frame);
  void report_sent(const Frame& frame, const Status& status);
  void signal_peer() const;
  void leave_pipes();

  FakeDevice& device_;
  std::string local_;
  std::string remote_;
  std::shared_ptr<Pipe> in_;
  std::shared_ptr<Pipe> out_;
  bool open_ = false;
  bool finished_ = false;
  RegionGrants::Table granted_;  // to the peer; null: it is a stranger
  size_t stranger_messages_ = 0;
};

class FakeDevice final : public Device {
 public:
  static Result<std::unique_ptr<Device>> open(std::shared_ptr<NetworkState> network,
                                              std::shared_ptr<Domain> domain, const DeviceInfo& info);
  ~FakeDevice() override;

  const DeviceInfo& info() const override { return info_; }
  Result<std::string> listen(uint16_t port) override;
  Result<Connection*> connect(const std::string& address, int64_t timeout_ms) override;
  Result<RegionKey> register_memory(void* base, size_t bytes, int fd) override;
  void deregister_memory(const RegionKey& key) override;
  Status grant(const RegionKey& key, const PeerName& peer) override;
  void revoke(const RegionKey& key, const PeerName& peer) override;
  bool poll(std::vector<Completion>& completions) override;
  int event_fd() const override { return event_fd_; }
  void release(Connection* connection) override;

  // The calls below are made with the network's mutex held.
  NetworkState& network() { return *network_; }
  FakeConnection* add_connection(const std::string& remote, std::shared_ptr<Pipe> in,
                                 std::shared_ptr<Pipe> out);
  Completion& report(Completion::Kind kind, FakeConnection* connection);
  std::span<const std::byte> keep(std::span<const std::byte> message) { return arena_.copy(message); }
  RegionGrants& regions() { return domain_->regions; }
  void signal();
  void cut();
  void on_withdrawn(uint64_t region, const RegionTable* of);

 private:
  FakeDevice(std::shared_ptr<NetworkState> network, std::shared_ptr<Domain> domain, DeviceInfo info,
             int event_fd);

  std::shared_ptr<NetworkState> network_;
  std::shared_ptr<Domain> domain_;
  DeviceInfo info_;
  int event_fd_;
  bool signalled_ = false;
  std::string listening_;
  MessageArena arena_;
  std::vector<Completion> pending_;
  std::vector<FakeConnection*> opening_;  // of which the next poll() says that they are connected
  std::vector<std::unique_ptr<FakeConnection>> connections_;
};

}  // namespace hdt::transport::fake
