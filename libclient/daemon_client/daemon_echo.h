// daemon_echo.h: measures how long a rank and its daemon take to hear of each other, in groups of several
// nodes: a part of every call there, which is most of a small one where threads share cores. `hdtctl explain`
// counts it in.
#pragma once

#include "libclient/common/node_access.h"

namespace hdt::client {

// Leaves the median of some turns in this rank's board; nothing, if the daemon does not answer in time. Call
// it before the first operation.
void measure_echo(const NodeAccess& access);

}  // namespace hdt::client
