// out_of_memory.h: the failure of a call for which this process has no memory. Any thread.
#pragma once

#include "base/status.h"

namespace hdt::client {

// kSystem, with the limit of memory that is in force, if there is one; without memory for that text, a brief
// one.
Status out_of_memory() noexcept;

}  // namespace hdt::client
