// process_watch.h: the end of a process that connected to a unix socket. The socket alone does not tell it: a
// copy of it may live on in a child, and stays open as long as that runs.
#pragma once

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

// A pidfd of the process that connected to (or listens at) the other end of `socket`; readable once all of
// its threads have ended. From Linux 6.5 on the kernel gives it by the socket itself. Before, it is opened by
// the number that the socket has for that process: should the number be another process's by now, the one
// that is meant has ended, and nobody is taken for dead who lives.
// Not valid where the system cannot say: a process of a PID namespace that is not seen from here on a kernel
// before 6.5, or no pidfds at all (before 5.3, or forbidden). kRankLost: it has ended already. kSystem: no
// descriptor is left.
Result<UniqueFd> watch_peer(int socket);
// The same by the number, as on kernels before 6.5.
Result<UniqueFd> watch_peer_by_number(int socket);
// Whether the process that `pidfd` is of has ended.
bool has_ended(int pidfd);

}  // namespace hdt
