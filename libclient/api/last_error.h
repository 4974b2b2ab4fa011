// last_error.h: turns a Status into the result of a C call and keeps its message for hdtGetLastError().
#pragma once

#include "base/status.h"
#include "hdt/hdt.h"

namespace hdt::client {

// Returns the code of `status`. If it is a failure (neither kSuccess nor kInProgress), its text becomes
// the calling thread's last error. Success does not clear the last error.
hdtResult_t report(const Status& status);
// The calling thread's last error, "" if there was none. Valid until the thread's next report() of a
// failure.
const char* last_error();

}  // namespace hdt::client
