// process_watch.h: watches for the end of a process that connected to a unix socket. The socket alone does
// not report it: a child may hold a copy of the socket, which then stays open as long as the child runs.
#pragma once

#include "base/status.h"
#include "base/unique_fd.h"

namespace hdt {

// A pidfd of the process that connected to (or listens at) the other end of `socket`. It becomes
// readable once all threads of the process have ended.
//
// From Linux 6.5 on the kernel gives the pidfd of the socket itself. Earlier kernels know the process by
// its number only. If another process has that number by now, the pidfd watches that one: the end of the
// first is then noticed late, but no process that runs is taken for ended.
//
// The descriptor is not valid where the system cannot provide one: before Linux 6.5 for a process of a
// PID namespace that is not visible from here, before 5.3, or where pidfds are forbidden. kRankLost: the
// process has ended already. kSystem: no descriptor is left.
Result<UniqueFd> watch_peer(int socket);
// The same by the process's number, as watch_peer() does on kernels before 6.5. Public for its test.
Result<UniqueFd> watch_peer_by_number(int socket);
// Whether the process of `pidfd` has ended. Never waits.
bool has_ended(int pidfd);

}  // namespace hdt
