// runtime_folder.h: the folder in which this user's processes of a node find their embedded daemon:
// $XDG_RUNTIME_DIR/hdt, or /tmp/hdt-UID. Only this user can write to it, so nobody else can put a daemon in
// the way.
#pragma once

#include <string>

#include "base/status.h"
#include "libclient/launch/environment.h"

namespace hdt::client {

// Where a node's socket is; nothing is made. `node`: $HDT_NODE_NAME, or "". A job with a secret (job_secret()
// in environment.h) has a socket of its own. A variable that cannot be used is an error that names it, or,
// where all processes of the user come to the same, a line in the log and /tmp/hdt-UID.
struct RuntimePlace {
  std::string folder;
  std::string base;  // of the node's files: base + ".sock", base + ".lock"
};
Result<RuntimePlace> runtime_place(const GetText& variable, const std::string& node);
// Makes the folder, if it is not there, or says what is wrong with it.
Status make_runtime_folder(const std::string& folder);

}  // namespace hdt::client
