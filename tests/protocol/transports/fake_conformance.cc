// fake_conformance.cc: the conformance suite over the in-memory network.
#include "tests/protocol/transports/transport_conformance.h"
#include "transports/fake/network.h"

namespace hdt::transport {

namespace {

class FakeWorld : public World {
 public:
  explicit FakeWorld(const fake::Faults& faults) : network_(test_seed()), backend_(network_.make_backend()) {
    network_.set_faults(faults);
    network_.set_unreachable("10.0.0.99");
  }
  Backend& backend() override { return *backend_; }
  DeviceInfo device(int index) override {
    DeviceInfo info;
    info.name = "fake" + std::to_string(index);
    info.address = "10.0.0." + std::to_string(index + 1);
    return info;
  }
  std::string refusing_address() override { return "10.0.0.2:1"; }
  std::string silent_address() override { return "10.0.0.99:1"; }

 private:
  fake::FakeNetwork network_;
  std::unique_ptr<Backend> backend_;
};

std::unique_ptr<World> make_fake() {
  fake::Faults faults;
  faults.bytes_per_poll = 1 << 20;
  return std::make_unique<FakeWorld>(faults);
}

std::unique_ptr<World> make_reordering() {
  fake::Faults faults;
  faults.bytes_per_poll = 300'001;
  faults.max_delay_polls = 3;
  return std::make_unique<FakeWorld>(faults);
}

std::unique_ptr<World> make_lossy() {
  fake::Faults faults;
  faults.bytes_per_poll = 300'001;
  faults.lose_one_in = 7;
  return std::make_unique<FakeWorld>(faults);
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Fake, TransportConformance, testing::Values(&make_fake));
INSTANTIATE_TEST_SUITE_P(Fake, TransportStrangers, testing::Values(&make_fake));
INSTANTIATE_TEST_SUITE_P(FakeReordering, TransportConformance, testing::Values(&make_reordering));
INSTANTIATE_TEST_SUITE_P(FakeReordering, TransportStrangers, testing::Values(&make_reordering));
INSTANTIATE_TEST_SUITE_P(FakeLossy, TransportConformance, testing::Values(&make_lossy));
INSTANTIATE_TEST_SUITE_P(FakeLossy, TransportStrangers, testing::Values(&make_lossy));

}  // namespace hdt::transport
