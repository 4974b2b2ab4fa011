// key_command.h: `hdtctl key new`, which asks no daemon.
#pragma once

#include <string>

#include "base/status.h"

namespace hdt::ctl {

// Makes a cluster key, or with `node` a node key, in the file. What to do with it, for people; of a node key
// the line for security.nodes_file, which is no secret.
Result<std::string> make_key(const std::string& output, const std::string& node);

}  // namespace hdt::ctl
