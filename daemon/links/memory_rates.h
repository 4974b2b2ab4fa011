// memory_rates.h: measures how fast this node copies and combines memory that is in no cache, as users'
// buffers are. It takes some 40 ms, and 64 MiB for that time.
#pragma once

#include "ipc/measurements.h"

namespace hdt::daemon {

// Measures on the calling thread, which is an engine's. The rates are bytes per second, and above 0.
ipc::MemoryRates measure_memory();

}  // namespace hdt::daemon
