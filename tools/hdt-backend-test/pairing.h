// pairing.h: chooses the two NICs that the suite connects. A trial connection has shown that they reach
// each other.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "transports/transport.h"

namespace hdt::backend_test {

// "eth0 (10.0.0.2)", or "eth0 (10.0.0.2, down)".
std::string describe(const transport::DeviceInfo& nic);

// The choice; `from` and `to` may be the same NIC.
struct PairedNics {
  transport::DeviceInfo from;
  transport::DeviceInfo to;
  // One line for each pair that was tried before and did not connect, with the reason.
  std::vector<std::string> passed_over;
};

// Tries all pairs of different NICs, and then each NIC with itself if `also_alone` is true. A single NIC
// is always paired with itself. kNoBackend, with the reason for each pair, if none connects. `nics` must
// not be empty. Blocks for a minute and a half at most.
Result<PairedNics> pair_nics(transport::Backend& backend, const std::vector<transport::DeviceInfo>& nics,
                             bool also_alone);

}  // namespace hdt::backend_test
