// socket_owner.h: the user whose TCP socket is at the other end of a connection within this host, as the
// kernel reports it. A daemon without a cluster key accepts only daemons of root and of its own user on this
// host, and asks here whose they are. All functions may be called from any thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace hdt {

// `own` and `other` are the two ends as "127.0.0.1:4000" or "[::1]:4000". Returns nothing if no process
// has the other end open (any more), or if it is not on this host.
std::optional<uid_t> owner_of_other_end(const std::string& own, const std::string& other);

// The answer of one of the two ways below. If `known` is true and `uid` is empty, the kernel has
// answered that no process has the socket open.
struct SocketOwner {
  bool known = false;  // the kernel has answered; otherwise the other way is needed
  std::optional<uid_t> uid{};
};
// Asks for that one socket (sock_diag): some microseconds, however many sockets there are. Public for
// its test.
SocketOwner owner_by_question(const std::string& own, const std::string& other);
// Searches the tables of all TCP sockets, for kernels that do not answer the question. Public for its test.
std::optional<uid_t> owner_by_tables(const std::string& own, const std::string& other);

}  // namespace hdt
