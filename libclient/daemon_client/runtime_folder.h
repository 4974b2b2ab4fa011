// runtime_folder.h: the folder in which this user's processes of a node find their embedded daemon:
// $XDG_RUNTIME_DIR/hdt, or /tmp/hdt-UID. Only this user can write to it, so nobody else can put a daemon
// in the way. All processes of a job on the node must come to the same place, so it depends on the user,
// the node's name and the job's secret only.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "libclient/launch/environment.h"

namespace hdt::client {

// The place of a node's files.
struct RuntimePlace {
  std::string folder;
  // The path of the node's files without their endings: base + ".sock", base + ".lock".
  std::string base;
};
// Where a node's socket is; nothing is made. `node`: $HDT_NODE_NAME, or "". A job with a secret
// (job_secret() in launch/environment.h) has a socket of its own, as its daemons know each other by that
// secret. kConfig: HDT_NODE_NAME has a '/' or is too long for a socket's path. kSystem: this user has no
// number in its user namespace. An XDG_RUNTIME_DIR that cannot be used is no error, as all processes of
// the user come to the same: a line in the log, and /tmp/hdt-UID.
Result<RuntimePlace> runtime_place(const GetText& variable, const std::string& node);
// Makes the folder with mode 0700, if it is not there. kSystem: it cannot be made, or it is not this
// user's alone; the message says what is wrong and what helps. kInProgress: a process that ended has
// just removed it.
Status make_runtime_folder(const std::string& folder);
// The sockets of this user's embedded daemons in alphabetical order, for a tool that looks for a daemon; one
// that a killed process has left behind may be among them. `node`: as above; only those of that node, of jobs
// with a secret, too; "": of all nodes. Empty: there is no folder. kSystem: as make_runtime_folder(),
// kConfig: as runtime_place().
Result<std::vector<std::string>> embedded_sockets(const GetText& variable, const std::string& node);

}  // namespace hdt::client
