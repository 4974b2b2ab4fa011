// daemon_echo.h: measures how long a rank and its daemon take to hear of each other, in groups of
// several nodes. That is a part of every call there, and most of a small one where threads share cores.
// `hdtctl explain` adds it to its predictions; no decision depends on it.
#pragma once

#include "libclient/common/node_access.h"

namespace hdt::client {

// Leaves the median of some round trips in this rank's state (RankState::echo_ns), in ns. Leaves nothing if
// the daemon does not answer in time; takes 50 ms at most. To be called after the rank has taken its
// seat and before its first operation, by the thread that makes the group.
void measure_echo(const NodeAccess& access);

}  // namespace hdt::client
