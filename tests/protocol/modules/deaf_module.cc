// deaf_module.cc: the backends "deaf" and "mute", for tests: as on NICs that do not reach each other, nobody
// listens at the address that its devices give.
#include "transports/module.h"

namespace {

using hdt::Result;
using hdt::Status;
using namespace hdt::transport;  // NOLINT(google-build-using-namespace)

class DeafDevice final : public Device {
 public:
  explicit DeafDevice(std::unique_ptr<Device> tcp) : tcp_(std::move(tcp)) {}
  const DeviceInfo& info() const override { return tcp_->info(); }
  // A port that is reserved, so that nobody gets it by chance.
  Result<std::string> listen(uint16_t /*port*/) override { return tcp_->info().address + ":1"; }
  Result<Connection*> connect(const std::string& address, int64_t timeout_ms) override {
    return tcp_->connect(address, timeout_ms);
  }
  Result<RegionKey> register_memory(void* base, size_t bytes, int fd) override {
    return tcp_->register_memory(base, bytes, fd);
  }
  void deregister_memory(const RegionKey& key) override { tcp_->deregister_memory(key); }
  hdt::Status grant(const RegionKey& key, const PeerName& peer) override { return tcp_->grant(key, peer); }
  void revoke(const RegionKey& key, const PeerName& peer) override { tcp_->revoke(key, peer); }
  bool poll(std::vector<Completion>& completions) override { return tcp_->poll(completions); }
  int event_fd() const override { return tcp_->event_fd(); }
  void release(Connection* connection) override { tcp_->release(connection); }

 private:
  std::unique_ptr<Device> tcp_;
};

class DeafBackend final : public Backend {
 public:
  const char* name() const override { return DEAF_NAME; }
  Result<std::vector<DeviceInfo>> discover() override {
    DeviceInfo device;
    device.name = DEAF_NAME "0";
    device.address = "127.0.0.1";
    device.prefix_bits = 8;
    device.up = true;
    return std::vector{device};
  }
  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override {
    auto device = tcp_->open(info);
    if (!device.is_ok()) return device.status();
    return std::unique_ptr<Device>(std::make_unique<DeafDevice>(device.take()));
  }
  void limit_strangers(const StrangerLimits& limits) override { tcp_->limit_strangers(limits); }

 private:
  std::unique_ptr<Backend> tcp_ = make_tcp_backend();
};

Result<std::unique_ptr<Backend>> make(const BackendOptions& /*options*/) {
  return std::unique_ptr<Backend>(std::make_unique<DeafBackend>());
}

const ModuleDescription kModule = {kAbiVersion, DEAF_NAME, "nothing", &make};

}  // namespace

const ModuleDescription* hdt_transport_module() { return &kModule; }
