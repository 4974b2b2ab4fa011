// key_command.h: `hdtctl key new`. It makes keys, and asks no daemon.
#pragma once

#include <string>

#include "base/status.h"

namespace hdt::ctl {

// Makes a cluster key in the file `output`, or the node key of `node` if that is not empty. The file
// gets mode 0600, and must not exist. Returns the text to print: for a cluster key what to do with it;
// for a node key the line for security.nodes_file, which is no secret.
Result<std::string> make_key(const std::string& output, const std::string& node);

}  // namespace hdt::ctl
