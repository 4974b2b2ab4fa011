// ucx_conformance.cc: the conformance suite over UCX, by its own choice and by
// TCP, and the backend's options.
#include <gmock/gmock.h>

#include "tests/protocol/transports/loopback_world.h"
#include "transports/ucx/backend.h"

namespace hdt::transport {

namespace {

std::unique_ptr<World> make_ucx() { return std::make_unique<LoopbackWorld>(make_ucx_backend({})); }
std::unique_ptr<World> make_ucx_tcp() {
  return std::make_unique<LoopbackWorld>(make_ucx_backend({{"tls", "tcp"}}));
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Ucx, TransportConformance, testing::Values(&make_ucx));
INSTANTIATE_TEST_SUITE_P(Ucx, TransportStrangers, testing::Values(&make_ucx));
INSTANTIATE_TEST_SUITE_P(UcxTcp, TransportConformance, testing::Values(&make_ucx_tcp));
INSTANTIATE_TEST_SUITE_P(UcxTcp, TransportStrangers, testing::Values(&make_ucx_tcp));

TEST(UcxBackend, RefusesOptionsThatItDoesNotKnow) {
  EXPECT_THAT(make_ucx_backend({{"provider", "tcp"}}).status().message(), testing::HasSubstr("unknown key"));
  EXPECT_EQ(make_ucx_backend({{"tls", ""}}).status().code(), Code::kConfig);
}

TEST(UcxBackend, SaysThatATransportIsMissing) {
  auto backend = make_ucx_backend({{"tls", "nosuch"}});
  ASSERT_TRUE(backend.is_ok());
  DeviceInfo device;
  device.name = "lo";
  device.address = "127.0.0.1";
  EXPECT_FALSE(backend.value()->open(device).is_ok());
  EXPECT_TRUE(make_ucx_backend({}).take()->open(device).is_ok());
}

}  // namespace hdt::transport
