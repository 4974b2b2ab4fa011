// reach_probe.h: tries connections between NICs, all at once.
#pragma once

#include <vector>

#include "tools/hdtctl/doctor.h"

namespace hdt::ctl {

// Connects from each pair's own address to the other's, and fills in the error or the path's MTU. Takes `timeout_ms` at most.
void try_all(std::vector<Reach>& pairs, int timeout_ms);

}  // namespace hdt::ctl
