// surroundings.h: what the system allows this process, and what of it is used, for hdtctl doctor.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace hdt::daemon {

// Measures now; takes some system calls and makes a segment for a moment. The keys of the object:
// - open_files, open_files_used: descriptors, as the soft limit and in use;
// - memlock_bytes: the limit of locked memory;
// - memory_free: bytes that the tightest control group and the machine leave; null: not known;
// - group_bytes: what a small group may take of them on a node;
// - memory_error: why shared memory cannot be made; "": it can;
// - ports: [first, last] of the ports that the system gives data connections;
// - socket, socket_shut: the daemon's socket, and why other users do not reach it; "": they do.
nlohmann::json surroundings(const std::string& socket);

// Why a user who is neither the owner of the socket nor in its group cannot connect to it: the mode of
// the socket or of a folder above it. "": such a user can.
std::string shut_to_others(const std::string& socket);

}  // namespace hdt::daemon
