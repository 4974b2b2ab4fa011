// config.h: the daemon's configuration: one TOML file, every key of which an HDT_* variable or a flag can
// override. The keys, with their types, limits and help texts, are one table in config_keys.cc;
// docs/design/config.md says why.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/status.h"

namespace hdt {

inline constexpr int64_t kThreadsAuto = 0;

// [class.NAME]: the policy of the groups that were made with this class name.
struct ClassConfig {
  std::vector<std::string> backends = {"tcp"};  // in order of preference
  std::vector<std::string> nics = {"*"};        // names, addresses or patterns of them
  std::string algorithm = "auto";               // between nodes, of all collectives
  std::string priority = "bulk";                // or "latency"
  int64_t weight = 1;                           // among bulk classes
  bool operator==(const ClassConfig&) const = default;
};

struct Config {
  struct Node {
    std::string name;  // filled with the host name when not set
    std::string socket = "/run/hdt/hdtcommd.sock";
    int64_t threads = kThreadsAuto;
    std::string state_folder;
  } node;
  struct Nics {
    std::vector<std::string> use = {"*"};
    std::vector<std::string> exclude = {"lo",      "docker*",  "podman*", "veth*",  "virbr*", "vmnet*",
                                        "vnet*",   "br-*",     "lxcbr*",  "lxdbr*", "cni*",   "cali*",
                                        "cilium*", "flannel*", "kube*",   "tun*",   "tap*"};
    std::vector<std::string> addresses;
    int64_t port = 18520;
  } nics;
  struct Security {
    std::string cluster_key_file;
    bool insecure = false;
    std::string nodes_file;
    std::vector<std::string> allow_groups;
    std::string transport = "none";  // what protects tcp's data connections
  } security;
  struct Timeouts {
    int64_t connect_ms = 10'000;
    int64_t drain_ms = 5'000;
    int64_t restart_ms = 30'000;
  } timeouts;
  struct Link {
    std::string checksum = "none";
    int64_t stall_ms = 20;
    int64_t wait_ms = 5'000;
  } link;
  // Of each user of this node, but root and the daemon's own (daemon/sessions/user_limits.h).
  struct Limits {
    int64_t sessions = 2'048;
    int64_t groups = 4'096;
    int64_t seats = 65'536;
    int64_t making = 1'024;
    int64_t memories = 16'384;
    int64_t memory_mib = 4'194'304;
    int64_t listeners = 64;
    int64_t questions = 32;
    int64_t unread = 8'192;
    int64_t log_lines_per_s = 20;
    int64_t hello_ms = 5'000;
    // Not of users: connections of the network of which nobody knows yet whose they are.
    int64_t strangers = 512;
    int64_t strangers_per_address = 128;
  } limits;
  struct Log {
    std::string level = "info";
    std::string file;
  } log;
  std::map<std::string, ClassConfig> classes;
  // [backend.NAME]: texts for the backend itself, which alone knows what they mean.
  std::map<std::string, std::map<std::string, std::string>> backends;

  // "node.socket" -> "/etc/hdt/hdtcommd.toml:3"; keys left at their defaults are missing.
  std::map<std::string, std::string> origins;

  // Policy of a class: its own section, else that of the class "default", else the defaults.
  ClassConfig class_named(const std::string& name) const;
  LogLevel log_level() const;
};

using ConfigPairs = std::vector<std::pair<std::string, std::string>>;

// Where configuration comes from, weakest first: defaults, file, environment, flags.
struct ConfigSources {
  std::string file;         // must exist when not empty; else $HDT_CONFIG; else system_file, if it exists
  ConfigPairs flags;        // {"node.socket", "/tmp/a.sock"}
  ConfigPairs environment;  // {"HDT_NODE_SOCKET", "/tmp/a.sock"}; variables that are not ours are skipped
  std::string system_file = "/etc/hdt/hdtcommd.toml";
};

// The variables of this process whose names start with HDT_.
ConfigPairs config_environment();

// Takes every "--section.key VALUE" and "--section.key=VALUE" out of a command line. Whether the key exists
// is checked by load_config.
Result<ConfigPairs> take_config_flags(std::vector<std::string>& arguments);

// kConfig, in one line naming the place, the key and what was expected, for an unknown key or a bad value.
Result<Config> load_config(const ConfigSources& sources);

// Sets "class.dp.weight" and the like, as a flag would; `origin` is what errors and print_config name.
Status override_config(Config& config, const ConfigPairs& settings, const std::string& origin);

// The configuration as TOML, each value followed by a comment that says where it came from.
std::string print_config(const Config& config);

// The reference documentation of all keys, as Markdown.
std::string config_reference();

// Whether the NIC is to be used: it matches `use` and not `exclude`. A name written out in `use` beats
// `exclude`.
bool nic_selected(const Config::Nics& nics, const std::string& name);

// Whether `text` matches one of the patterns (* ? [...]).
bool matches_any(const std::vector<std::string>& patterns, const std::string& text);

// Engine threads to run: node.threads, or for "auto" one for every 8 NICs, at most half of the usable cores,
// at least 1.
int engine_threads(const Config& config, int nics, int usable_cores);

}  // namespace hdt
