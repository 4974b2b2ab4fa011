// pairing.h: which two NICs the suite connects: two that reach each other, as a connection between them has
// shown.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "transports/transport.h"

namespace hdt::backend_test {

// "eth0 (10.0.0.2)", and whether it is down.
std::string describe(const transport::DeviceInfo& nic);

struct PairedNics {
  transport::DeviceInfo from;
  transport::DeviceInfo to;
  std::vector<std::string> passed_over;  // a line for each pair that was tried before and did not connect
};

// Tries pairs of different NICs first, then (`also_alone`) each NIC with itself. A single NIC is always
// paired with itself. A failure tells the reason for each pair. `nics` must not be empty. Blocks for a minute
// and a half at most.
Result<PairedNics> pair_nics(transport::Backend& backend, const std::vector<transport::DeviceInfo>& nics,
                             bool also_alone);

}  // namespace hdt::backend_test
