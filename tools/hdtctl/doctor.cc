#include "tools/hdtctl/doctor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/address.h"
#include "tools/hdtctl/json_fields.h"

namespace hdt::ctl {

namespace {

using nlohmann::json;

constexpr uint64_t kFewFiles = 4096;
constexpr uint64_t kLittleLocked = uint64_t{64} << 20;
constexpr double kClockSeconds = 1;

double seconds_of(const json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number() ? found->get<double>() / 1e9 : 0;
}

const json& list_of(const json& from, const char* key) {
  static const json kNone = json::array();
  const auto found = from.find(key);
  return found != from.end() && found->is_array() ? *found : kNone;
}

class Examination {
 public:
  void own(const json& own, const Machine& machine) {
    note(Level::kGood, "daemon",
         fmt::format("node {} runs {} at {}", text_of(own, "node"), text_of(own, "software"),
                     text_of(own, "control")));
    nics(own);
    limits(own);
    permissions(own, machine);
  }

  void peer(const json& own, const json& told, const std::vector<Reach>& tried) {
    const std::string address = text_of(told, "address");
    if (!told.contains("description")) return no_answer(address, text_of(told, "error"));
    const json& theirs = told["description"];
    if (!theirs.is_object()) {
      return note(Level::kProblem, "reach",
                  fmt::format("the daemon at {} answers what cannot be understood", address),
                  "install the same release on all nodes");
    }
    const std::string node = text_of(theirs, "node");
    if (text_of(theirs, "software") != text_of(own, "software")) {
      note(Level::kWarning, "versions",
           fmt::format("node {} runs {}, this one {}", node, text_of(theirs, "software"),
                       text_of(own, "software")),
           "install the same release on all nodes");
    } else {
      note(Level::kGood, "versions", fmt::format("node {} runs the same release", node));
    }
    clock(own, theirs, node);
    reach(node, tried);
    mtu(own, theirs, node, tried);
  }

  std::vector<Finding> take() { return std::move(findings_); }

 private:
  void note(Level level, const char* subject, std::string text, std::string advice = "") {
    findings_.push_back({level, subject, std::move(text), std::move(advice)});
  }

  void nics(const json& own) {
    for (const json& nic : list_of(own, "nics")) {
      if (nic.value("up", true)) continue;
      note(Level::kProblem, "reach",
           fmt::format("NIC {} ({}) is down", text_of(nic, "name"), text_of(nic, "address")),
           fmt::format("ip link set {} up, or leave it out with nics.exclude", text_of(nic, "name")));
    }
  }

  void limits(const json& own) {
    const auto& nics = list_of(own, "nics");
    const bool registers = std::any_of(nics.begin(), nics.end(),
                                       [](const json& nic) { return text_of(nic, "backend") == "rdma"; });
    const uint64_t locked = number_of(own, "memlock_bytes");
    const uint64_t files = number_of(own, "open_files");
    bool good = true;
    if (registers && locked < kLittleLocked) {
      good = false;
      note(Level::kProblem, "limits",
           fmt::format("hdtcommd may lock {} bytes of memory, and backend rdma locks all that it registers",
                       locked),
           "LimitMEMLOCK=infinity in its systemd unit, or ulimit -l unlimited");
    }
    if (files < kFewFiles) {
      good = false;
      note(Level::kWarning, "limits",
           fmt::format("hdtcommd may open {} files; every process, group and rail takes some", files),
           "LimitNOFILE=65536 in its systemd unit, or ulimit -n 65536");
    }
    if (good) note(Level::kGood, "limits", fmt::format("{} open files, enough memory to lock", files));
  }

  void permissions(const json& own, const Machine& machine) {
    const auto& nics = list_of(own, "nics");
    const bool outside = std::any_of(nics.begin(), nics.end(), [](const json& nic) {
      return !text_of(nic, "address").starts_with("127.");
    });
    if (outside && !own.value("cluster_key", false)) {
      note(Level::kWarning, "permissions",
           "no cluster key: any machine that reaches this node can join its groups",
           "security.cluster_key_file, the same file on all nodes");
    }
    if (list_of(own, "allow_groups").empty()) {
      note(Level::kGood, "permissions",
           "every user of this node may open the socket (security.allow_groups names none)");
    }
    if (machine.ptrace_scope == "2" || machine.ptrace_scope == "3") {
      note(Level::kWarning, "permissions",
           "kernel.yama.ptrace_scope is " + machine.ptrace_scope +
               ": ranks cannot read each other's ordinary memory, and copy it twice",
           "sysctl kernel.yama.ptrace_scope=1, or buffers of hdtMemAlloc");
    }
  }

  void no_answer(const std::string& address, const std::string& error) {
    std::string advice =
        "is hdtcommd running there, does it listen at this address (nics.port), does a firewall let it "
        "through?";
    if (error.find("version") != std::string::npos) advice = "install the same release on all nodes";
    if (error.find("key") != std::string::npos || error.find("proof") != std::string::npos) {
      advice = "security.cluster_key_file must be the same file on all nodes";
    }
    note(Level::kProblem, "reach", fmt::format("the daemon at {} does not answer: {}", address, error),
         advice);
  }

  void clock(const json& own, const json& theirs, const std::string& node) {
    const double apart = seconds_of(theirs, "wall_ns") - seconds_of(own, "wall_ns");
    if (std::abs(apart) <= kClockSeconds)
      return note(Level::kGood, "clock", fmt::format("the clock of node {} is right", node));
    note(Level::kWarning, "clock",
         fmt::format("the clock of node {} is {:.1f} s {}: logs do not fit together", node, std::abs(apart),
                     apart > 0 ? "ahead" : "behind"),
         "chrony or another time service on all nodes");
  }

  // A NIC that reaches nothing of the node is a problem; one that reaches some of its NICs, as in another subnet, is not.
  void reach(const std::string& node, const std::vector<Reach>& tried) {
    std::map<std::string, std::pair<size_t, size_t>> made;  // by own NIC: connections made, tried
    for (const Reach& pair : tried) {
      if (pair.node != node) continue;
      auto& [good, all] = made[pair.from_nic + " (" + pair.from_address + ")"];
      good += pair.error.empty() ? 1 : 0;
      ++all;
      if (!pair.error.empty()) {
        note(Level::kWarning, "reach",
             fmt::format("{} ({}) does not reach {} ({}) of node {}: {}", pair.from_nic, pair.from_address,
                         pair.to_nic, pair.to_address, node, pair.error),
             "if they are of one network: firewall, cabling, and a routing rule for each address (ip rule "
             "add from ADDRESS table N)");
      }
    }
    if (made.empty())
      return note(Level::kProblem, "reach",
                  fmt::format("no NIC of this node and of node {} share a backend that can be tried", node),
                  "nics.use and [class.NAME] backends on both");
    for (const auto& [nic, counts] : made) {
      const auto& [good, all] = counts;
      if (good == 0) {
        note(Level::kProblem, "reach", fmt::format("NIC {} reaches no NIC of node {}", nic, node),
             "leave it out with nics.exclude, or repair its network");
      } else {
        note(Level::kGood, "reach",
             fmt::format("NIC {} reaches {} of {} NIC(s) of node {}", nic, good, all, node));
      }
    }
  }

  void mtu(const json& own, const json& theirs, const std::string& node, const std::vector<Reach>& tried) {
    const auto mtu_of = [](const json& nics, const std::string& address) -> uint64_t {
      for (const json& nic : nics) {
        if (text_of(nic, "address") == address) return number_of(nic, "mtu");
      }
      return 0;
    };
    bool good = true;
    for (const Reach& pair : tried) {
      if (pair.node != node || !pair.error.empty()) continue;
      const uint64_t here = mtu_of(list_of(own, "nics"), pair.from_address);
      const uint64_t there = mtu_of(list_of(theirs, "nics"), host_of(pair.to_address));
      if (here != 0 && there != 0 && here != there) {
        good = false;
        note(
            Level::kWarning, "mtu",
            fmt::format("{} has MTU {}, {} of node {} has {}", pair.from_nic, here, pair.to_nic, node, there),
            fmt::format("the same on both: ip link set {} mtu {}", here < there ? pair.from_nic : pair.to_nic,
                        std::max(here, there)));
      } else if (pair.path_mtu != 0 && pair.path_mtu < here) {
        good = false;
        note(Level::kWarning, "mtu",
             fmt::format("from {} to {} of node {} packets may have {} bytes, though the NIC's MTU is {}",
                         pair.from_nic, pair.to_nic, node, pair.path_mtu, here),
             "the MTU of switches and routers between them");
      }
    }
    if (good) note(Level::kGood, "mtu", fmt::format("the MTU is the same here and on node {}", node));
  }

  std::vector<Finding> findings_;
};

const char* name_of(Level level) {
  switch (level) {
    case Level::kGood:
      return "good";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      return "problem";
  }
  return "problem";
}

}  // namespace

std::vector<Reach> pairs_to_try(const json& answer) {
  std::vector<Reach> pairs;
  if (!answer.contains("own")) return pairs;
  for (const json& peer : list_of(answer, "peers")) {
    if (!peer.contains("description")) continue;
    for (const json& rail : list_of(peer["description"], "rails")) {
      for (const json& nic : list_of(answer["own"], "nics")) {
        // Connections of the others are made by their libraries, which a probe cannot stand in for.
        if (text_of(nic, "backend") != "tcp" || text_of(rail, "backend") != "tcp") continue;
        pairs.push_back({text_of(nic, "name"), text_of(nic, "address"), text_of(peer["description"], "node"),
                         text_of(rail, "nic"), text_of(rail, "address"), "", 0});
      }
    }
  }
  return pairs;
}

std::vector<Finding> examine(const json& answer, const std::vector<Reach>& tried, const Machine& machine) {
  if (!answer.contains("own")) {
    return {{Level::kProblem, "daemon", text_of(answer, "error"),
             "start hdtcommd, name its socket with --socket, and see that this user may open it "
             "(security.allow_groups)"}};
  }
  Examination examination;
  examination.own(answer["own"], machine);
  for (const json& peer : list_of(answer, "peers")) examination.peer(answer["own"], peer, tried);
  return examination.take();
}

std::string doctor_table(const std::vector<Finding>& findings) {
  std::string text;
  size_t problems = 0, warnings = 0;
  for (const Finding& finding : findings) {
    problems += finding.level == Level::kProblem ? 1 : 0;
    warnings += finding.level == Level::kWarning ? 1 : 0;
    text += fmt::format("{:<8} {:<12} {}\n", name_of(finding.level), finding.subject, finding.text);
    if (!finding.advice.empty()) text += fmt::format("{:<21} do: {}\n", "", finding.advice);
  }
  return text + fmt::format("{} problem(s), {} warning(s)\n", problems, warnings);
}

json doctor_json(const std::vector<Finding>& findings) {
  json list = json::array();
  for (const Finding& finding : findings) {
    list.push_back({{"level", name_of(finding.level)},
                    {"subject", finding.subject},
                    {"text", finding.text},
                    {"advice", finding.advice}});
  }
  return {{"findings", list}};
}

int doctor_exit(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& f) { return f.level == Level::kProblem; })
             ? 1
             : 0;
}

}  // namespace hdt::ctl
