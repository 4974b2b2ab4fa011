// ofi_conformance.cc: the conformance suite over libfabric's providers that work on any machine, and the
// backend's options.
#include <gmock/gmock.h>

#include "tests/protocol/transports/loopback_world.h"
#include "transports/ofi/backend.h"

namespace hdt::transport {

namespace {

std::unique_ptr<World> make_ofi_tcp() {
  return std::make_unique<LoopbackWorld>(make_ofi_backend({{"provider", "tcp;ofi_rxm"}}));
}
std::unique_ptr<World> make_ofi_shm() {
  return std::make_unique<LoopbackWorld>(make_ofi_backend({{"provider", "shm"}}));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(OfiTcp, TransportConformance, testing::Values(&make_ofi_tcp));
INSTANTIATE_TEST_SUITE_P(OfiTcp, TransportStrangers, testing::Values(&make_ofi_tcp));
INSTANTIATE_TEST_SUITE_P(OfiShm, TransportConformance, testing::Values(&make_ofi_shm));
INSTANTIATE_TEST_SUITE_P(OfiShm, TransportStrangers, testing::Values(&make_ofi_shm));

TEST(OfiBackend, RefusesOptionsThatItDoesNotKnow) {
  const auto provider = make_ofi_backend({{"provider", "sockets"}});
  EXPECT_EQ(provider.status().code(), Code::kConfig);
  EXPECT_THAT(provider.status().message(), testing::HasSubstr("'verbs;ofi_rxm'"));
  EXPECT_THAT(make_ofi_backend({{"providers", "shm"}}).status().message(), testing::HasSubstr("unknown key"));
}

TEST(OfiBackend, ListsWhatTheProviderWorksOn) {
  auto backend = make_ofi_backend({{"provider", "shm"}});
  ASSERT_TRUE(backend.is_ok());
  const auto devices = backend.value()->discover();
  ASSERT_TRUE(devices.is_ok());
  ASSERT_EQ(devices.value().size(), 1u) << "shm reaches no other node";
  EXPECT_EQ(devices.value()[0].name, "lo");
  DeviceInfo foreign;
  foreign.address = "192.0.2.1";  // documentation range: nobody's
  EXPECT_FALSE(make_ofi_backend({}).take()->open(foreign).is_ok());
}

}  // namespace hdt::transport
