// socket_owner.h: whose TCP socket is at the other end of a connection within this host, as the kernel says.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

namespace hdt {

// `own` and `other` are the ends, "127.0.0.1:4000" or "[::1]:4000". Nothing: no process has the other end
// open (any more), or it is not on this host.
std::optional<uid_t> owner_of_other_end(const std::string& own, const std::string& other);

// The two ways to find out; the second is for kernels that do not answer the first.
struct SocketOwner {
  bool known = false;  // the kernel has answered
  std::optional<uid_t> uid{};
};
SocketOwner owner_by_question(const std::string& own, const std::string& other);
std::optional<uid_t> owner_by_tables(const std::string& own, const std::string& other);

}  // namespace hdt
