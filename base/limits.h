// limits.h: what the operating system's limits are called and whose they are, for messages.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace hdt {

// "hdtcommd (pid 77)": this process.
std::string own_process();

// Which limit `error` (an errno value) speaks of, its value, whose it is, and how it is raised:
// "RLIMIT_NOFILE of process hdtcommd (pid 77) is 64: ..."; empty where the value speaks of none.
// Status::from_errno appends it.
std::string limit_behind(int error);

// "process hdtcommd (pid 77) is at its limit of 64 open files: ...": what who connects is told while there is
// no descriptor for it.
std::string descriptor_limit_reached();

// The soft limit of open files is set to the hard one. What it was and what it is, equal if there was nothing
// to raise.
struct RaisedLimit {
  uint64_t from, to;
};
Result<RaisedLimit> raise_descriptor_limit();

// kSystem: why a thread cannot be started, with the limits of threads that are in force.
Status thread_refused(const std::string& name, int error);

}  // namespace hdt
