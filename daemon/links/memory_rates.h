// memory_rates.h: how fast this node copies and combines memory that is in no cache, as users' buffers are:
// some 40 ms, with 64 MiB.
#pragma once

#include "ipc/measurements.h"

namespace hdt::daemon {

session::MemoryRates measure_memory();

}  // namespace hdt::daemon
