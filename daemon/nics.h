// nics.h: which of the machine's addresses the daemon uses, by config.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "transports/transport.h"

namespace hdt::daemon {

// nics.addresses as given; else every NIC that is up and selected by use / exclude; else loopback, said in the log.
Result<std::vector<transport::DeviceInfo>> select_nics(const Config::Nics& config,
                                                       transport::Backend& backend);

// Which rails to make between our devices and their addresses ("10.0.0.1:4000"): every NIC of the side with more of them
// gets one, within its subnet where it can, and those of the other side as evenly as possible. Pairs of indices, by device.
std::vector<std::pair<size_t, size_t>> pair_nics(const std::vector<transport::DeviceInfo>& devices,
                                                 const std::vector<std::string>& addresses);

}  // namespace hdt::daemon
