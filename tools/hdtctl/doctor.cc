// doctor.cc: the checks of hdtctl doctor, one function a subject. The answer comes from a daemon, so
// every field is read through functions that accept that it is missing.
//
// The answer has "own", the description of this node, and "peers". A peer has "address", its own
// "description" or an "error", the trials "there" and "back", and "back_error" if the way back was not
// tried.
#include "tools/hdtctl/doctor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/address.h"
#include "tools/hdtctl/json_fields.h"

namespace hdt::ctl {

namespace {

using nlohmann::json;

// Limits below which a warning or a problem is noted. With fewer descriptors than this a daemon serves
// few jobs.
constexpr uint64_t kFewFiles = 4096;
// Descriptors that a job of some ranks and groups takes, and that one rank takes to connect.
constexpr uint64_t kFewLeft = 256, kNoneLeft = 16;
constexpr uint64_t kFewOfJob = 256;
// Ports for data connections, bytes that may be locked, and seconds between two clocks.
constexpr uint64_t kFewPorts = 1000;
constexpr uint64_t kLittleLocked = uint64_t{64} << 20;
constexpr double kClockSeconds = 1;
// If a NIC's MTU is larger (InfiniBand), the daemons try packets of this length.
constexpr uint32_t kLargestTried = 32'000;

// A time in nanoseconds, as seconds; 0 if it is missing.
double seconds_of(const json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number() ? found->get<double>() / 1e9 : 0;
}

// A list, which is empty if the field is missing or has another type.
const json& list_of(const json& from, const char* key) {
  static const json kNone = json::array();
  const auto found = from.find(key);
  return found != from.end() && found->is_array() ? *found : kNone;
}

// Collects findings about one answer.
class Examination {
 public:
  // The checks of this node alone.
  void own(const json& own, const Machine& machine) {
    // The daemon has answered, or there would be no "own".
    note(Level::kGood, "daemon",
         fmt::format("node {} runs {} at {}", text_of(own, "node"), text_of(own, "software"),
                     text_of(own, "control")));
    nics(own);
    limits(own, machine);
    memory(own);
    ports(own);
    permissions(own, machine);
    // Only tcp connections are tried by the daemons (daemon/control/doctor.h).
    for (const json& nic : list_of(own, "nics")) {
      if (text_of(nic, "backend") != "tcp") untried_backends_.insert(text_of(nic, "backend"));
    }
  }

  // Notes the parts that the doctor cannot try. Call it last.
  void untried(bool any_peer) {
    for (const std::string& backend : untried_backends_) {
      not_tried("reach", "connections of backend " + backend +
                             ", which its library makes: hdt-backend-test " + backend + " tries it");
    }
    if (!any_peer) not_tried("reach", "the way to other nodes: name their daemons, hdtctl doctor ADDRESS...");
  }

  // The checks of one other node: is it reachable, of the same release, in time, and over paths with
  // good packets.
  void peer(const json& own, const json& told, const std::vector<Reach>& tried) {
    const std::string address = text_of(told, "address");
    if (!told.contains("description")) return no_answer(address, text_of(told, "error"));
    const json& theirs = told["description"];
    if (!theirs.is_object()) {
      return note(Level::kProblem, "reach",
                  fmt::format("the daemon at {} answers what cannot be understood", address),
                  "install the same release on all nodes");
    }
    // A daemon of another release may lack fields, so a difference of releases is noted before anything
    // else.
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
    reach(node, tried, told);
    mtu(own, theirs, node, tried);
  }

  std::vector<Finding> take() { return std::move(findings_); }

 private:
  void note(Level level, const char* subject, std::string text, std::string advice = "") {
    findings_.push_back({level, subject, std::move(text), std::move(advice)});
  }

  // NICs that are down.
  void nics(const json& own) {
    for (const json& nic : list_of(own, "nics")) {
      if (flag_of(nic, "up", true)) continue;
      note(Level::kProblem, "reach",
           fmt::format("NIC {} ({}) is down", text_of(nic, "name"), text_of(nic, "address")),
           fmt::format("ip link set {} up, or leave it out with nics.exclude", text_of(nic, "name")));
    }
  }

  // Descriptors of the daemon and of a job, and memory that may be locked. Locked memory matters only
  // for rdma.
  void limits(const json& own, const Machine& machine) {
    const auto& nics = list_of(own, "nics");
    // rdma locks all memory that it registers.
    const bool registers = std::any_of(nics.begin(), nics.end(),
                                       [](const json& nic) { return text_of(nic, "backend") == "rdma"; });
    const uint64_t locked = number_of(own, "memlock_bytes");
    const uint64_t files = number_of(own, "open_files");
    const uint64_t used = number_of(own, "open_files_used");
    const uint64_t left = files - std::min(files, used);
    bool good = true;
    // A problem: the first large buffer would fail.
    if (registers && locked < kLittleLocked) {
      good = false;
      note(Level::kProblem, "limits",
           fmt::format("hdtcommd may lock {} bytes of memory, and backend rdma locks all that it registers",
                       locked),
           "LimitMEMLOCK=infinity in its systemd unit, or ulimit -l unlimited");
    }
    // A warning: it is enough for small jobs.
    if (files < kFewFiles) {
      good = false;
      note(Level::kWarning, "limits",
           fmt::format("hdtcommd may open {} files; every process, group and rail takes some", files),
           "LimitNOFILE=65536 in its systemd unit, or ulimit -n 65536");
    }
    // How much of a problem it is depends on whether even one process could connect.
    if (left < kFewLeft) {
      good = false;
      note(left < kNoneLeft ? Level::kProblem : Level::kWarning, "limits",
           fmt::format("hdtcommd has {} of {} files open: {} are left for new jobs", used, files, left),
           "end jobs that are not needed, or LimitNOFILE=65536 in its systemd unit");
    }
    // A job inherits the limit of the shell or service that starts it.
    if (machine.open_files != 0 && machine.open_files < kFewOfJob) {
      good = false;
      note(Level::kWarning, "limits",
           fmt::format(
               "a job started from here may open {} files; each group and each shared buffer takes some",
               machine.open_files),
           "ulimit -n 65536 before the job, or LimitNOFILE of what starts it");
    }
    if (good) {
      note(Level::kGood, "limits",
           fmt::format("{} of {} files of hdtcommd are left{}{}", left, files,
                       machine.open_files == 0
                           ? ""
                           : fmt::format(", {} of a job started from here", machine.open_files),
                       registers ? ", and enough memory may be locked" : ""));
    }
  }

  // Segments are anonymous files (memfd). Their size is not limited by /dev/shm, but by the memory of
  // the daemon's control group.
  void memory(const json& own) {
    // A daemon of another release may not report it.
    if (!own.contains("memory_free")) return;
    const std::string error = text_of(own, "memory_error");
    const uint64_t needed = number_of(own, "group_bytes");
    const bool known = own["memory_free"].is_number();
    const uint64_t free = known ? number_of(own, "memory_free") : 0;
    // The daemon has tried to make a small segment.
    if (!error.empty()) {
      note(Level::kProblem, "memory", "hdtcommd cannot make shared memory: " + error,
           "the limits of its control group, and vm.overcommit_memory");
    } else if (known && free < needed) {
      note(Level::kProblem, "memory",
           fmt::format("hdtcommd's control group leaves {} MiB; a small group takes {} MiB of shared memory",
                       free >> 20, needed >> 20),
           "MemoryMax in its systemd unit, or the container's memory limit");
    } else if (known) {
      note(Level::kGood, "memory",
           fmt::format("{} MiB are left for shared memory; a small group takes {} MiB", free >> 20,
                       needed >> 20));
    } else {
      not_tried("memory", "how much shared memory is left: the system does not report it");
    }
  }

  // The range from which the system picks the ports of data connections.
  void ports(const json& own) {
    const json& range = list_of(own, "ports");
    if (range.size() != 2 || !range[0].is_number_unsigned() || !range[1].is_number_unsigned()) return;
    const uint64_t first = range[0].get<uint64_t>(), last = range[1].get<uint64_t>();
    const uint64_t count = last >= first ? last - first + 1 : 0;
    if (count >= kFewPorts) {
      note(Level::kGood, "ports",
           fmt::format("data connections use ports {} to {}; a firewall must let them through", first, last));
    } else {
      note(
          Level::kWarning, "ports",
          fmt::format("the system gives out ports {} to {} only: {} for all connections", first, last, count),
          "sysctl net.ipv4.ip_local_port_range=\"32768 60999\"");
    }
  }

  // The cluster key, the socket, and the kernel's rule for reading other processes' memory.
  void permissions(const json& own, const Machine& machine) {
    const auto& nics = list_of(own, "nics");
    // A daemon with loopback addresses only is reached by nobody else, so it needs no key.
    const bool outside = std::any_of(nics.begin(), nics.end(), [](const json& nic) {
      return !text_of(nic, "address").starts_with("127.");
    });
    if (flag_of(own, "own_host_only")) {
      note(Level::kWarning, "permissions",
           "no cluster key: only daemons of this host are peers, and no group has nodes on two hosts",
           "hdtctl key new --output /etc/hdt/cluster.key, the same file on all nodes as "
           "security.cluster_key_file");
    } else if (outside && !flag_of(own, "cluster_key")) {
      note(Level::kWarning, "permissions",
           "no cluster key: any machine that reaches this node can join its groups",
           "security.cluster_key_file, the same file on all nodes");
    }
    socket(own);
    // With these values the kernel refuses process_vm_readv() among the processes of one user.
    if (machine.ptrace_scope == "2" || machine.ptrace_scope == "3") {
      note(Level::kWarning, "permissions",
           "kernel.yama.ptrace_scope is " + machine.ptrace_scope +
               ": ranks cannot read each other's ordinary memory, and copy it twice",
           "sysctl kernel.yama.ptrace_scope=1, or buffers of hdtMemAlloc");
    }
  }

  // Whether other users can open the socket, as they meet it: by the modes of the socket and of the
  // folders above it, and by the daemon's list of groups.
  void socket(const json& own) {
    const json& groups = list_of(own, "allow_groups");
    const std::string shut = text_of(own, "socket_shut");
    if (!shut.empty()) {
      note(Level::kWarning, "permissions", "other users cannot open the daemon's socket: " + shut,
           "chmod o+x the folders and o+w the socket; start hdtcommd with umask 022");
    } else if (groups.empty()) {
      note(Level::kGood, "permissions",
           "every user of this node may open the socket (security.allow_groups names none)");
    } else {
      std::string names;
      for (const json& group : groups) {
        if (group.is_string()) names += (names.empty() ? "" : ", ") + group.get<std::string>();
      }
      note(Level::kGood, "permissions",
           "every user of this node reaches the socket, and members of " + names + " may use it");
    }
  }

  void not_tried(const char* subject, std::string text) { note(Level::kNotTried, subject, std::move(text)); }

  // The error's words tell which of the usual causes it is.
  void no_answer(const std::string& address, const std::string& error) {
    std::string advice =
        "is hdtcommd running there, does it listen at this address (nics.port), does a firewall let it "
        "through?";
    // The default advice is for a daemon that cannot be reached at all.
    if (error.find("version") != std::string::npos) advice = "install the same release on all nodes";
    if (error.find("key") != std::string::npos || error.find("proof") != std::string::npos) {
      advice = "security.cluster_key_file must be the same file on all nodes";
    }
    note(Level::kProblem, "reach", fmt::format("the daemon at {} does not answer: {}", address, error),
         advice);
  }

  // Clocks that differ make it hard to compare the logs of two nodes.
  void clock(const json& own, const json& theirs, const std::string& node) {
    // The two readings are not taken at the same moment; kClockSeconds is far more than what lies
    // between them.
    const double apart = seconds_of(theirs, "wall_ns") - seconds_of(own, "wall_ns");
    if (std::abs(apart) <= kClockSeconds)
      return note(Level::kGood, "clock", fmt::format("the clock of node {} is right", node));
    note(Level::kWarning, "clock",
         fmt::format("the clock of node {} is {:.1f} s {}: logs do not fit together", node, std::abs(apart),
                     apart > 0 ? "ahead" : "behind"),
         "chrony or another time service on all nodes");
  }

  // A NIC that reaches no NIC of the node is a problem. A NIC that reaches some of them is none: the
  // others may be in another subnet. Each failed connection is a warning.
  void reach(const std::string& node, const std::vector<Reach>& tried, const json& told) {
    // First what this node has tried, then what the other one has.
    for (const bool back : {false, true}) {
      std::map<std::string, std::pair<size_t, size_t>> made;  // by NIC of who tries: connections made, tried
      for (const Reach& pair : tried) {
        if (pair.node != node || pair.back != back) continue;
        auto& [good, all] = made[pair.from_nic + " (" + pair.from_address + ")"];
        good += pair.error.empty() ? 1 : 0;
        ++all;
        if (!pair.error.empty()) {
          note(Level::kWarning, "reach",
               fmt::format("{} ({}){} does not reach data port {} ({}) of {}: {}", pair.from_nic,
                           pair.from_address, back ? " of node " + node : "", pair.to_nic, pair.to_address,
                           back ? "this node" : "node " + node, pair.error),
               "if they are of one network: firewall (data connections use ports that the system picks), "
               "cabling, and a routing "
               "rule for each address (ip rule add from ADDRESS table N)");
        }
      }
      // Nothing was tried on the way back: it is not known whether it works.
      if (made.empty() && back) {
        const std::string why = text_of(told, "back_error");
        not_tried("reach", fmt::format("the way from node {} to this one: {}", node,
                                       why.empty() ? "it has tried nothing" : why));
        // Nothing could be tried on the way there.
      } else if (made.empty()) {
        note(Level::kProblem, "reach",
             fmt::format("no NIC of this node and of node {} share a backend that can be tried", node),
             "nics.use and [class.NAME] backends on both");
      }
      for (const auto& [nic, counts] : made) {
        const auto& [good, all] = counts;
        const std::string whose = back ? fmt::format("NIC {} of node {}", nic, node) : "NIC " + nic;
        const std::string whom = back ? "this node" : "node " + node;
        if (good == 0) {
          note(Level::kProblem, "reach", fmt::format("{} reaches no NIC of {}", whose, whom),
               "leave it out with nics.exclude, or repair its network");
        } else {
          note(Level::kGood, "reach",
               fmt::format("{} reaches {} of {} NIC(s) of {}", whose, good, all, whom));
        }
      }
    }
  }

  // Looks at the packets of each connection that was made, in the order of severity: the daemon has
  // found that large packets vanish (`narrowed`); the two NICs have different MTUs; the path carries
  // smaller packets than the NICs. The rest has passed.
  void mtu(const json& own, const json& theirs, const std::string& node, const std::vector<Reach>& tried) {
    // 0 if the daemon does not name the address or its MTU.
    const auto mtu_of = [](const json& nics, const std::string& address) -> uint64_t {
      for (const json& nic : nics) {
        if (text_of(nic, "address") == address) return number_of(nic, "mtu");
      }
      return 0;
    };
    std::map<std::string, uint64_t> passed;  // by NIC of this node: the largest packet to all that it reaches
    bool within = false;
    for (const Reach& pair : tried) {
      if (pair.node != node || !pair.error.empty()) continue;
      // `ours` is the address of this node, whichever side has tried.
      const std::string& ours = pair.back ? pair.to_address : pair.from_address;
      const std::string& other = pair.back ? pair.from_address : pair.to_address;
      const std::string& our_nic = pair.back ? pair.to_nic : pair.from_nic;
      const std::string& other_nic = pair.back ? pair.from_nic : pair.to_nic;
      const uint64_t here = mtu_of(list_of(own, "nics"), host_of(ours));
      const uint64_t there = mtu_of(list_of(theirs, "nics"), host_of(other));
      if (!pair.narrowed.empty()) {
        note(Level::kWarning, "mtu",
             fmt::format("{}{}", pair.back ? "node " + node + " finds: " : "", pair.narrowed),
             "the same MTU on the NICs and on switches, routers and tunnels between them; until then jobs "
             "run with small packets");
      } else if (here != 0 && there != 0 && here != there) {
        // The same pair was named in the other direction.
        if (pair.back) continue;
        note(Level::kWarning, "mtu",
             fmt::format("{} has MTU {}, {} of node {} has {}", our_nic, here, other_nic, node, there),
             fmt::format("the same on both: ip link set {} mtu {}", here < there ? our_nic : other_nic,
                         std::max(here, there)));
      } else if (pair.largest == 0) {
        within = true;
      } else if (pair.largest < here && pair.largest < kLargestTried) {
        note(Level::kWarning, "mtu",
             fmt::format("between {} and {} of node {} packets have {} bytes, though the NIC's MTU is {}",
                         our_nic, other_nic, node, pair.largest, here),
             "the MTU of switches and routers between them");
      } else {
        const auto [entry, fresh] = passed.emplace(our_nic, pair.largest);
        // The smallest packet of all paths of a NIC is what is reported.
        if (!fresh) entry->second = std::min<uint64_t>(entry->second, pair.largest);
      }
    }
    for (const auto& [nic, bytes] : passed) {
      note(Level::kGood, "mtu",
           fmt::format("packets of {} bytes pass between NIC {} and node {}, both ways", bytes, nic, node));
    }
    if (within)
      not_tried("mtu", fmt::format("large packets to node {}: it is reached without a network", node));
  }

  // Backends of this node whose connections their libraries make.
  std::set<std::string> untried_backends_;
  std::vector<Finding> findings_;
};

// The names in the table and in JSON.
const char* name_of(Level level) {
  switch (level) {
    case Level::kGood:
      return "good";
    case Level::kNotTried:
      return "not tried";
    case Level::kWarning:
      return "warning";
    case Level::kProblem:
      return "problem";
  }
  return "problem";
}

}  // namespace

std::vector<Reach> tried_paths(const json& answer) {
  std::vector<Reach> pairs;
  for (const json& peer : list_of(answer, "peers")) {
    if (!peer.is_object() || !peer.contains("description") || !peer["description"].is_object()) continue;
    // Both lists have the same form; "back" holds what the other daemon has tried.
    for (const char* way : {"there", "back"}) {
      for (const json& trial : list_of(peer, way)) {
        if (!trial.is_object()) continue;
        pairs.push_back({text_of(trial, "from_nic"), text_of(trial, "from"),
                         text_of(peer["description"], "node"), text_of(trial, "to_nic"), text_of(trial, "to"),
                         way == std::string("back"), text_of(trial, "error"), text_of(trial, "narrowed"),
                         static_cast<uint32_t>(number_of(trial, "largest"))});
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
  examination.untried(!list_of(answer, "peers").empty());
  return examination.take();
}

std::string doctor_table(const std::vector<Finding>& findings) {
  std::string text;
  size_t problems = 0, warnings = 0;
  for (const Finding& finding : findings) {
    problems += finding.level == Level::kProblem ? 1 : 0;
    warnings += finding.level == Level::kWarning ? 1 : 0;
    text += fmt::format("{:<9} {:<12} {}\n", name_of(finding.level), finding.subject, finding.text);
    if (!finding.advice.empty()) text += fmt::format("{:<22} do: {}\n", "", finding.advice);
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
