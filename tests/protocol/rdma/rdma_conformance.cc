// rdma_conformance.cc: the conformance suite over real verbs, between the two ends of a cable in the virtual
// machine of tools/rdma-vm (--link veth), which sets RDMA_VM_IPS and RDMA_VM_PEER_IPS. rdma_vm_test runs it
// there.
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "tests/protocol/transports/transport_conformance.h"
#include "transports/rdma/backend.h"

namespace hdt::transport {

namespace {

// The first word of an environment variable.
std::string first_of(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr)
    throw std::runtime_error(std::string(variable) + " is not set: run this by tools/rdma-vm");
  const std::string words = text;
  return words.substr(0, words.find(' '));
}

class RdmaWorld : public World {
 public:
  Backend& backend() override { return *backend_; }
  DeviceInfo device(int index) override {
    DeviceInfo info;
    info.name = index == 0 ? "eth0" : "ethb0";
    info.address = first_of(index == 0 ? "RDMA_VM_IPS" : "RDMA_VM_PEER_IPS");
    return info;
  }
  std::string refusing_address() override { return first_of("RDMA_VM_PEER_IPS") + ":9"; }
  // An address of the same network that nobody has.
  std::string silent_address() override { return "10.77.0.99:4000"; }
  bool knows_writers() override { return false; }

 private:
  std::unique_ptr<Backend> backend_ = rdma::make_backend(rdma::system_verbs());
};

std::unique_ptr<World> make_world() { return std::make_unique<RdmaWorld>(); }

// The other cable, whose NIC goes down; the suite's stays up. (It cannot come back here: Linux 6.1's
// soft-RoCE loses the queue pair of its connection management when that has something to send over a NIC that
// is down.)
class SecondCable : public World {
 public:
  Backend& backend() override { return *backend_; }
  DeviceInfo device(int index) override {
    DeviceInfo info;
    info.name = index == 0 ? "eth1" : "ethb1";
    info.address = index == 0 ? "10.77.1.1" : "10.77.1.2";
    return info;
  }
  std::string refusing_address() override { return "10.77.1.2:9"; }
  std::string silent_address() override { return "10.77.1.99:4000"; }

 private:
  std::unique_ptr<Backend> backend_ = rdma::make_backend(rdma::system_verbs());
};

std::unique_ptr<World> make_second_cable() { return std::make_unique<SecondCable>(); }

}  // namespace

INSTANTIATE_TEST_SUITE_P(Rdma, TransportConformance, testing::Values(&make_world));
INSTANTIATE_TEST_SUITE_P(Rdma, TransportStrangers, testing::Values(&make_world));

class RdmaPort : public TransportConformance {};
INSTANTIATE_TEST_SUITE_P(Rdma, RdmaPort, testing::Values(&make_second_cable));

TEST_P(RdmaPort, DownEndsItsConnections) {
  const Pair pair = connect();
  EXPECT_TRUE(a_.device->info().up);
  ASSERT_EQ(std::system("ip link set eth1 down"), 0);
  ASSERT_TRUE(
      run_until([&] { return a_.closed(pair.client) != nullptr && b_.closed(pair.server) != nullptr; }));
  EXPECT_NE(a_.closed(pair.client)->completion.error.message().find("went down"), std::string::npos)
      << a_.closed(pair.client)->completion.error.message();
  EXPECT_FALSE(a_.device->info().up);
}

TEST(RdmaBackend, DiscoversItsAdaptersOnly) {
  const std::unique_ptr<Backend> backend = rdma::make_backend(rdma::system_verbs());
  const auto devices = backend->discover();
  ASSERT_TRUE(devices.is_ok()) << devices.status().to_string();
  EXPECT_EQ(devices.value().size(), 4u) << "two cables, two ends each; no loopback";
  for (const DeviceInfo& info : devices.value()) {
    EXPECT_EQ(info.name.rfind("eth", 0), 0u) << info.name;
    EXPECT_TRUE(info.up);
    EXPECT_GT(info.bits_per_second, 0u);
    EXPECT_EQ(info.mtu, 4096u);
    EXPECT_EQ(info.prefix_bits, 24u);
  }
  DeviceInfo wrong;
  wrong.address = "127.0.0.1";
  EXPECT_EQ(backend->open(wrong).status().code(), Code::kNoBackend);
  wrong.address = "192.0.2.1";  // documentation range: nobody's
  EXPECT_FALSE(backend->open(wrong).is_ok());
}

}  // namespace hdt::transport
