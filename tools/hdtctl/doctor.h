// doctor.h: what is wrong with a set-up, before any job: findings, each with what to do, from what the daemons tell of
// themselves and from what was tried here.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace hdt::ctl {

// A connection from a NIC of this node to one of another.
struct Reach {
  std::string from_nic, from_address;
  std::string node, to_nic, to_address;  // to_address: with a port
  std::string error;                     // "": it was made
  uint32_t path_mtu = 0;                 // 0: not known
};

enum class Level : uint8_t { kGood, kWarning, kProblem };

struct Finding {
  Level level = Level::kGood;
  std::string subject;  // "reach", "mtu", "limits", "clock", "versions", "permissions", "daemon"
  std::string text;
  std::string advice;  // what to do; "" where nothing is to be done
};

// Of this machine, beside what daemons tell.
struct Machine {
  std::string ptrace_scope;  // the contents of /proc/sys/kernel/yama/ptrace_scope; "": there is none
};

// Where another daemon's answer names NICs that ours may connect to: (own NIC, theirs) with addresses; nothing tried yet.
std::vector<Reach> pairs_to_try(const nlohmann::json& answer);
// `answer`: what the daemon says to "doctor"; {"error": ...} if it does not.
std::vector<Finding> examine(const nlohmann::json& answer, const std::vector<Reach>& tried,
                             const Machine& machine);

std::string doctor_table(const std::vector<Finding>& findings);
nlohmann::json doctor_json(const std::vector<Finding>& findings);
// 1 if anything is a problem.
int doctor_exit(const std::vector<Finding>& findings);

}  // namespace hdt::ctl
