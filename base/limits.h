// limits.h: names of the operating system's limits for messages. A message that reports a failed system
// call names the limit behind it, its value, whose limit it is, and how it is raised, because an errno
// text such as "Too many open files" leaves all of that open.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace hdt {

// This process for messages: "hdtcommd (pid 77)".
std::string own_process();

// The limit that is behind `error` (an errno value): "RLIMIT_NOFILE of process hdtcommd (pid 77) is 64:
// ...". Empty if the value does not speak of a limit, or if the limit is not known. The values are read
// at the time of the call. Status::from_errno() appends the text.
std::string limit_behind(int error);

// "process hdtcommd (pid 77) is at its limit of 64 open files ...": the answer to a process or a daemon
// that connects while this one has no descriptor for the connection.
std::string descriptor_limit_reached();

// The soft limit of open files, before and after. Both are equal if there was nothing to raise.
struct RaisedLimit {
  uint64_t from, to;
};
// Raises the soft limit of open files to the hard one. For the daemon's start: it needs descriptors for
// each process, group and rail, and the usual soft limit of 1,024 is too low for that. kSystem: the
// kernel refuses.
Result<RaisedLimit> raise_descriptor_limit();

// The kSystem status for a thread that could not be started. It names the limits of threads that are in
// force, because `error` (EAGAIN in most cases) does not identify the one that was reached.
Status thread_refused(const std::string& name, int error);

}  // namespace hdt
