// local.cc: an example of a backend written outside of HDT's tree: TCP, but on loopback addresses of the
// user's choice only. It starts from HDT's own TCP backend and changes what NICs there are;
// docs/backend-guide.md tells how to write one from nothing, and how this one is built.
//
//   [backend.local]
//   addresses = "127.0.1.1,127.0.1.2"
#include <arpa/inet.h>

#include <string>
#include <utility>
#include <vector>

#include "transports/module.h"

#ifndef BACKEND_NAME
#define BACKEND_NAME "local"
#endif

namespace {

using hdt::Code;
using hdt::Result;
using hdt::Status;
using hdt::transport::Backend;
using hdt::transport::Device;
using hdt::transport::DeviceInfo;
using hdt::transport::StrangerLimits;

constexpr uint32_t kLoopbackPrefixBits = 8;

class LocalBackend final : public Backend {
 public:
  explicit LocalBackend(std::vector<std::string> addresses) : addresses_(std::move(addresses)) {}
  const char* name() const override { return BACKEND_NAME; }

  Result<std::vector<DeviceInfo>> discover() override {
    std::vector<DeviceInfo> devices;
    for (const std::string& address : addresses_) {
      DeviceInfo device;
      device.name = "lo" + std::to_string(devices.size());
      device.address = address;
      device.prefix_bits = kLoopbackPrefixBits;
      device.up = true;
      devices.push_back(device);
    }
    return devices;
  }

  Result<std::unique_ptr<Device>> open(const DeviceInfo& info) override { return tcp_->open(info); }

  void limit_strangers(const StrangerLimits& limits) override { tcp_->limit_strangers(limits); }

 private:
  std::vector<std::string> addresses_;
  std::unique_ptr<Backend> tcp_ = hdt::transport::make_tcp_backend();
};

Result<std::unique_ptr<Backend>> make(const hdt::transport::BackendOptions& options) {
  std::string text = "127.0.0.1";
  for (const auto& [key, value] : options) {
    if (key != "addresses") return Status(Code::kConfig, "no option is called \"" + key + "\"");
    text = value;
  }
  std::vector<std::string> addresses;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    addresses.push_back(text.substr(0, comma));
    text.erase(0, comma + 1);
    in_addr address{};
    if (inet_pton(AF_INET, addresses.back().c_str(), &address) != 1 || (ntohl(address.s_addr) >> 24) != 127) {
      return Status(Code::kConfig, "addresses: expected 127.x.x.x, found \"" + addresses.back() + "\"");
    }
  }
  return std::unique_ptr<Backend>(std::make_unique<LocalBackend>(std::move(addresses)));
}

const hdt::transport::ModuleDescription kModule = {hdt::transport::kAbiVersion, BACKEND_NAME,
                                                   "kernel sockets", &make};

}  // namespace

const hdt::transport::ModuleDescription* hdt_transport_module() { return &kModule; }
