// stop_signal.h: SIGTERM asks the run to save and to end at the next step, as a batch system does before it
// takes the nodes away.
#pragma once

namespace hdt::tools {

// From now on SIGTERM does not end the process; it is kept for stop_requested(). SIGINT still ends it at
// once.
void catch_stop_signal();
// Whether SIGTERM has come since. Any thread.
bool stop_requested();

}  // namespace hdt::tools
