// backend.cc: the tcp backend: plain kernel sockets, which work on every NIC and on loopback. It is the
// only backend that is not a module, as it needs no library and also carries control connections.
#include "transports/net/interfaces.h"
#include "transports/tcp/device.h"
#include "transports/tcp/options.h"
#include "transports/transport.h"

namespace hdt::transport {

namespace {

// One per engine, and one for the control network. Its devices share the Domain and hold it alive.
class TcpBackend final : public Backend {
 public:
  explicit TcpBackend(const tcp::Options& options) : options_(options) {}
  const char* name() const override { return "tcp"; }
  Result<std::vector<DeviceInfo>> discover() override { return tcp::list_interfaces(); }
  // info.address may be any local address, also one that discover() does not list (127.0.1.2). A domain
  // name is not resolved.
  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override {
    return tcp::TcpDevice::open(domain_, info, options_);
  }
  void limit_strangers(const StrangerLimits& limits) override { domain_->strangers.set_limits(limits); }

 private:
  tcp::Options options_;
  std::shared_ptr<tcp::Domain> domain_ = std::make_shared<tcp::Domain>();
};

}  // namespace

// With default options, in particular without protection.
std::unique_ptr<Backend> make_tcp_backend() { return tcp::make_backend({}); }

std::unique_ptr<Backend> tcp::make_backend(const Options& options) {
  return std::make_unique<TcpBackend>(options);
}

}  // namespace hdt::transport
