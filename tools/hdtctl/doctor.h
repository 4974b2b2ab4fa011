// doctor.h: what is wrong with a set-up, before any job: findings, each with what to do, from what the
// daemons tell of themselves and from what was tried here.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hdt::ctl {

// A connection from a NIC of this node to a data port of another, or the other way, as the daemon there tried
// it.
struct Reach {
  std::string from_nic, from_address;
  std::string node, to_nic, to_address;  // node: the other one; to_address: with a port
  bool back = false;                     // from the other node to this one
  std::string error;                     // "": it was made
  std::string narrowed;                  // why it uses smaller packets than its NIC allows; "": it does not
  uint32_t largest = 0;  // the largest packet that has passed both ways; 0: none was tried (within a node)
};

enum class Level : uint8_t { kGood, kNotTried, kWarning, kProblem };

struct Finding {
  Level level = Level::kGood;
  std::string
      subject;  // "reach", "mtu", "limits", "memory", "ports", "clock", "versions", "permissions", "daemon"
  std::string text;
  std::string advice;  // what to do; "" where nothing is to be done
};

// Of this machine, beside what daemons tell.
struct Machine {
  std::string ptrace_scope;  // the contents of /proc/sys/kernel/yama/ptrace_scope; "": there is none
  uint64_t open_files = 0;   // that a job started here may open; 0: not known
};

// What the daemon's answer tells of ways to other nodes, and back.
std::vector<Reach> tried_paths(const nlohmann::json& answer);
// `answer`: what the daemon says to "doctor"; {"error": ...} if it does not.
std::vector<Finding> examine(const nlohmann::json& answer, const std::vector<Reach>& tried,
                             const Machine& machine);

std::string doctor_table(const std::vector<Finding>& findings);
nlohmann::json doctor_json(const std::vector<Finding>& findings);
// 1 if anything is a problem.
int doctor_exit(const std::vector<Finding>& findings);

}  // namespace hdt::ctl
