// doctor.h: hdtctl doctor: finds what is wrong with a set-up before any job runs. It looks at what the
// daemons say about themselves, at the connections that they have tried, and at this machine. The result
// is a list of findings, each with advice. Nothing here talks to a daemon; that is main.cc's work.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace hdt::ctl {

// One connection that a daemon has tried: from a NIC of this node to a data port of another one, or in
// the opposite direction (`back`), as the other daemon has tried it.
struct Reach {
  // The NIC of the side that has tried, by name and address.
  std::string from_nic, from_address;
  // `node` is the other node in both directions. `to_address` has a port.
  std::string node, to_nic, to_address;
  // True: from the other node to this one.
  bool back = false;
  // "": the connection was made.
  std::string error;
  // Why the connection uses smaller packets than its NIC allows; "": it does not.
  std::string narrowed;
  // Bytes of the largest packet that has passed in both directions. 0: none was tried, as within a node.
  uint32_t largest = 0;
};

// How serious a finding is. kNotTried says that something was not checked, so that silence does not look
// like success.
enum class Level : uint8_t { kGood, kNotTried, kWarning, kProblem };

// One line of the report.
struct Finding {
  Level level = Level::kGood;
  std::string
      subject;  // "reach", "mtu", "limits", "memory", "ports", "clock", "versions", "permissions", "daemon"
  std::string text;
  // Advice on what to do; "" if nothing has to be done.
  std::string advice;
};

// Facts about this machine that hdtctl reads itself.
struct Machine {
  // The contents of /proc/sys/kernel/yama/ptrace_scope; "": there is no such file.
  std::string ptrace_scope;
  // The number of files that a job started here may open; 0: not known.
  uint64_t open_files = 0;
};

// The connections in a daemon's answer, both from this node and back. Entries that are broken are left
// out.
std::vector<Reach> tried_paths(const nlohmann::json& answer);
// All findings. `answer` is the daemon's answer to "doctor", or {"error": ...} if there is none. Fields
// that are missing or have another type are taken as empty, since a daemon may be of another release.
std::vector<Finding> examine(const nlohmann::json& answer, const std::vector<Reach>& tried,
                             const Machine& machine);

// The findings as text for people, with the numbers of problems and warnings in the end.
std::string doctor_table(const std::vector<Finding>& findings);
// The findings for programs.
nlohmann::json doctor_json(const std::vector<Finding>& findings);
// The exit code: 1 if any finding is a problem, otherwise 0.
int doctor_exit(const std::vector<Finding>& findings);

}  // namespace hdt::ctl
