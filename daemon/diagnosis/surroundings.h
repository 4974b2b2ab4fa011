// surroundings.h: what the system allows this process, for hdtctl doctor: limits and what is used of them.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace hdt::daemon {

// open_files, open_files_used, memlock_bytes; memory_free (bytes that the tightest control group leaves;
// null: no limit), group_bytes (what a small group takes of them on a node), memory_error (why shared memory
// cannot be made; "": it can); ports ([first, last] of those that the system gives data connections);
// socket_shut (why other users do not reach the socket at `socket`; "": they do).
nlohmann::json surroundings(const std::string& socket);

// Why a user who is neither the owner nor of the group of the file cannot connect to the socket there; "":
// the user can.
std::string shut_to_others(const std::string& socket);

}  // namespace hdt::daemon
