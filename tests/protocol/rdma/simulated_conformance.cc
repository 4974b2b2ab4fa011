// simulated_conformance.cc: the conformance suite over simulated adapters: the backend's own code, on any
// machine.
#include "tests/protocol/rdma/simulated_world.h"

namespace hdt::transport {

INSTANTIATE_TEST_SUITE_P(SimulatedRdma, TransportConformance, testing::Values(&rdma::make_simulated_world));
INSTANTIATE_TEST_SUITE_P(SimulatedRdma, TransportStrangers, testing::Values(&rdma::make_simulated_world));

}  // namespace hdt::transport
