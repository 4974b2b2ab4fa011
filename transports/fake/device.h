// device.h: a device and the connections of a FakeNetwork. One mutex guards the whole network, and one end's
// poll changes the other end as well: it reports kSent there, or a broken connection. The public calls of the
// backend contract take the mutex; the others, below a line that says so, are made with it held.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transports/fake/state.h"
#include "transports/support/message_arena.h"
#include "transports/support/region_table.h"
#include "transports/transport.h"

namespace hdt::transport::fake {

// One end of a connection, owned by its device. States: not open until the device's first poll() after
// connect() (an accepted one is open at once), then open, then finished, which is when kClosed is reported.
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
  // Delivers what is due to this end, in a poll of its device. Returns true if anything happened.
  bool deliver();
  // True if a later poll will find something to do.
  bool has_input() const { return !finished_ && (!in_->frames.empty() || in_->closed); }
  // True if a write to that region is partly placed, and `of` is this peer's table or null.
  bool inside_write_to(uint64_t region, const RegionTable* of) const;
  bool finished() const { return finished_; }
  // Ends this end. `reason` goes into its kClosed, `given_up` into the kSent of what is under way to the
  // peer, and `told_to_peer` into the kClosed of the peer.
  void finish(const Status& reason, const Status& given_up, const Status& told_to_peer);
  // Ends it with kLink.
  void fail(const std::string& reason);
  // Ends a connect that is refused, with kNoDaemon.
  void refuse();
  // Ends both ends at once, with the same reason.
  void break_wire(const std::string& reason);

 private:
  Status check_open() const;
  // Why a stranger may not have sent the frame; "": it may. Counts the stranger's messages.
  std::string not_for_strangers(const Frame& frame);
  // The place of a write here, or nullptr if it was not granted. Only for an admitted peer.
  std::byte* locate(const Frame& frame) const;
  // Draws the frame's faults, queues it and wakes the peer's device.
  void post(Frame frame);
  // Places as much of the payload as `budget` allows, in bytes, and reduces it. False: not all of it is
  // placed, because the budget is used up or because the place is not valid; the connection is finished in
  // the second case.
  bool place(Frame& frame, uint64_t& budget);
  // Reports the frame here, and as sent at the other end.
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
  RegionGrants::Table granted_;  // what the peer may write; null: it is not admitted
  size_t stranger_messages_ = 0;
};

// A device, owned by a test or an engine. `pending_` collects completions until the next poll(); they may
// come from another device's poll, on another thread.
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
  // Makes an end of a connection. The device owns it.
  FakeConnection* add_connection(const std::string& remote, std::shared_ptr<Pipe> in,
                                 std::shared_ptr<Pipe> out);
  // Appends a completion for the next poll(), and makes event_fd() readable. The reference is valid until the
  // next report.
  Completion& report(Completion::Kind kind, FakeConnection* connection);
  std::span<const std::byte> keep(std::span<const std::byte> message) { return arena_.copy(message); }
  RegionGrants& regions() { return domain_->regions; }
  // Makes event_fd() readable.
  void signal();
  // Breaks all connections.
  void cut();
  // Ends the connections that are in the middle of a write to the region (see shared_regions.h).
  void on_withdrawn(uint64_t region, const RegionTable* of);

 private:
  FakeDevice(std::shared_ptr<NetworkState> network, std::shared_ptr<Domain> domain, DeviceInfo info,
             int event_fd);

  std::shared_ptr<NetworkState> network_;
  std::shared_ptr<Domain> domain_;
  DeviceInfo info_;
  int event_fd_;
  bool signalled_ = false;  // event_fd_ is readable
  std::string listening_;   // "address:port"; "": it does not listen
  MessageArena arena_;      // of the messages that the latest poll() reported
  std::vector<Completion> pending_;
  std::vector<FakeConnection*> opening_;  // the next poll() reports kConnected for them, and opens them
  std::vector<std::unique_ptr<FakeConnection>> connections_;
};

}  // namespace hdt::transport::fake
