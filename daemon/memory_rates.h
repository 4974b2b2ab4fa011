// memory_rates.h: how fast this node copies and combines memory. Takes about a millisecond.
#pragma once

#include "session/figures.h"

namespace hdt::daemon {

session::MemoryRates measure_memory();

}  // namespace hdt::daemon
