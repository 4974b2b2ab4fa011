// backend.cc: the TCP backend: plain kernel sockets, works everywhere.
#include "transports/tcp/device.h"
#include "transports/tcp/interfaces.h"
#include "transports/transport.h"

namespace hdt::transport {

namespace {

class TcpBackend final : public Backend {
 public:
  const char* name() const override { return "tcp"; }
  Result<std::vector<DeviceInfo>> discover() override { return tcp::list_interfaces(); }
  // info.address may be any local address, also one that discover() does not list (127.0.1.2).
  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override {
    return tcp::TcpDevice::open(domain_, info);
  }

 private:
  std::shared_ptr<tcp::Domain> domain_ = std::make_shared<tcp::Domain>();
};

}  // namespace

std::unique_ptr<Backend> make_tcp_backend() { return std::make_unique<TcpBackend>(); }

}  // namespace hdt::transport
