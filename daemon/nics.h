// nics.h: which of the machine's addresses the daemon uses, by config.
#pragma once

#include <vector>

#include "base/config.h"
#include "base/status.h"
#include "transports/transport.h"

namespace hdt::daemon {

// nics.addresses as given; else every NIC that is up and selected by use / exclude; else loopback, said in the log.
Result<std::vector<transport::DeviceInfo>> select_nics(const Config::Nics& config, transport::Backend& backend);

}  // namespace hdt::daemon
