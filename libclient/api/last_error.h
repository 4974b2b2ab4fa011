// last_error.h: turns a Status into what the C interface returns, keeping its words for hdtGetLastError().
#pragma once

#include "base/status.h"
#include "hdt/hdt.h"

namespace hdt::client {

// Returns the code; a failure's message becomes this thread's last error.
hdtResult_t report(const Status& status);
const char* last_error();

}  // namespace hdt::client
