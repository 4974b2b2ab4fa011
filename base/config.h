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

// Config::Node::threads for "auto": engine_threads() decides.
inline constexpr int64_t kThreadsAuto = 0;

// [class.NAME]: the policy of the groups that are made with this class name. docs/design/classes.md
// describes how classes share a NIC, and how a class is changed while its groups run.
struct ClassConfig {
  // Best first: each pair of nodes takes the first backend that connects them.
  std::vector<std::string> backends = {"tcp"};
  // Names, addresses or patterns; only NICs that [nics] selects are taken.
  std::vector<std::string> nics = {"*"};
  std::string algorithm = "auto";  // of collectives between nodes; a call that cannot take it uses "auto"
  std::string priority = "bulk";   // "bulk", or "latency": goes before bulk on a shared NIC
  int64_t weight = 1;              // 1 to 1000, share of a NIC among bulk classes
  bool operator==(const ClassConfig&) const = default;
};

// The whole configuration: a plain value, made by load_config() and handed to the daemon. The member
// initialisers are the built-in defaults; the table in config_keys.cc refers to each member and holds
// its limits and its help text, which is the reference for what a member means. Sizes and times carry
// their unit in the name.
struct Config {
  // This node and its daemon.
  struct Node {
    std::string name;                               // the host name if it was not set
    std::string socket = "/run/hdt/hdtcommd.sock";  // unix socket of the node's processes, at most 107 bytes
    int64_t threads = kThreadsAuto;                 // engine threads, 1 to 64, or kThreadsAuto
    std::string state_folder;  // where figures and keys are kept between runs; empty: nowhere
  } node;
  // The NICs that the daemon may use, and where it listens on them.
  struct Nics {
    std::vector<std::string> use = {"*"};  // names or patterns
    // Left out of what `use` selects: loopback, and interfaces of containers and virtual machines, which
    // look like NICs but reach no other node.
    std::vector<std::string> exclude = {"lo",      "docker*",  "podman*", "veth*",  "virbr*", "vmnet*",
                                        "vnet*",   "br-*",     "lxcbr*",  "lxdbr*", "cni*",   "cali*",
                                        "cilium*", "flannel*", "kube*",   "tun*",   "tap*"};
    std::vector<std::string> addresses;  // in place of `use` and `exclude`, if not empty
    int64_t port = 18520;                // on which other daemons reach this one; 0: any free port
  } nics;
  // Rules for peers and for users of the socket.
  struct Security {
    std::string cluster_key_file;           // empty: no key, and only daemons of this host are peers
    bool insecure = false;                  // without a key: other hosts are peers all the same
    std::string nodes_file;                 // the nodes that may be peers; empty: first seen, then known
    std::vector<std::string> allow_groups;  // user groups that may use the socket; empty: everybody
    std::string transport = "none";  // "none", "mac" or "encrypt": protection of tcp's data connections
  } security;
  // In milliseconds.
  struct Timeouts {
    int64_t connect_ms = 10'000;  // to another daemon, handshake included
    int64_t drain_ms = 5'000;     // for operations under way after SIGTERM
    int64_t restart_ms = 30'000;  // for which a killed daemon's groups are kept; 0: they fail at once
  } timeouts;
  // Between nodes (transports/link).
  struct Link {
    std::string checksum = "none";  // "none" or "crc32c", of what this node sends
    int64_t stall_ms = 20;          // silence after which a rail counts as lost, while another one is heard
    int64_t wait_ms = 5'000;        // how long a link without rails waits before its groups fail
  } link;
  // For each user of this node, but for root and the daemon's own user (daemon/sessions/user_limits.h).
  struct Limits {
    int64_t sessions = 2'048;        // connected processes
    int64_t groups = 4'096;          // groups of this node
    int64_t seats = 65'536;          // ranks in groups, or waiting for them
    int64_t making = 1'024;          // groups that ranks wait for at the same time
    int64_t memories = 16'384;       // shared allocations of hdtMemAlloc, counted for each group
    int64_t memory_mib = 4'194'304;  // their size together, in MiB
    int64_t listeners = 64;          // meeting places at which the daemon listens
    int64_t questions = 32;          // of hdtctl that are answered at the same time
    int64_t unread = 8'192;          // answers with descriptors that were not read yet
    int64_t log_lines_per_s = 20;    // in the daemon's log
    int64_t hello_ms = 5'000;        // for which a process may be connected silently
    // These two are not for users: they limit connections from the network whose daemon is not known yet.
    int64_t strangers = 512;
    int64_t strangers_per_address = 128;
  } limits;
  // The daemon's log (base/log.h).
  struct Log {
    std::string level = "info";  // trace, debug, info, warn or error
    std::string file;            // appended to; empty: standard error
  } log;
  // The classes that have a section of their own, by name; see class_named().
  std::map<std::string, ClassConfig> classes;
  // [backend.NAME]: options as texts, by the name of the backend. The backend alone knows what they
  // mean, and checks them when it is made.
  std::map<std::string, std::map<std::string, std::string>> backends;

  // Where a value came from: "node.socket" -> "/etc/hdt/hdtcommd.toml:3". Keys at their defaults have no
  // entry. print_config() reads it.
  std::map<std::string, std::string> origins;

  // The policy of a class: its own section, else that of the class "default", else the built-in
  // defaults.
  ClassConfig class_named(const std::string& name) const;
  // log.level, which apply() has checked; kInfo for a text that is no level.
  LogLevel log_level() const;
};

// Assignments as text: {name, value}.
using ConfigPairs = std::vector<std::pair<std::string, std::string>>;

// The sources of a configuration. A later one beats an earlier one: defaults, file, environment, flags.
struct ConfigSources {
  std::string file;         // must be readable if not empty; else $HDT_CONFIG; else system_file, if it exists
  ConfigPairs flags;        // {"node.socket", "/tmp/a.sock"}
  ConfigPairs environment;  // {"HDT_NODE_SOCKET", "/tmp/a.sock"}; variables that are not ours are skipped
  std::string system_file = "/etc/hdt/hdtcommd.toml";
};

// The variables of this process whose names start with HDT_.
ConfigPairs config_environment();

// Takes every "--section.key VALUE" and "--section.key=VALUE" out of a command line, and leaves the
// other arguments in `arguments` in their order. A flag is ours if its name holds a dot; load_config()
// checks that the key exists. The argument after a flag without '=' is its value even if it starts with
// "--". kConfig: the last argument is a flag without a value; `arguments` is then unchanged.
Result<ConfigPairs> take_config_flags(std::vector<std::string>& arguments);

// Reads all sources. kConfig: the file cannot be read, or a key or a value is wrong. The message is one
// line with the place, the key, what was expected and what was found. The first error ends the reading.
Result<Config> load_config(const ConfigSources& sources);

// Sets keys such as "class.dp.weight" in a configuration that exists, as a flag would. `origin` is what
// errors and print_config() name as the source. kConfig as load_config(); settings before the wrong one
// stay applied.
Status override_config(Config& config, const ConfigPairs& settings, const std::string& origin);

// The configuration as TOML. Each value is followed by a comment that says where it came from. The
// printed text reads back as the same configuration.
std::string print_config(const Config& config);

// The reference documentation of all keys as Markdown (docs/reference).
std::string config_reference();

// Whether the daemon uses the NIC: its name matches `use` and does not match `exclude`. A name that is
// written out in `use` beats `exclude`.
bool nic_selected(const Config::Nics& nics, const std::string& name);

// Whether `text` matches one of the shell patterns (* ? [...]). False for no patterns.
bool matches_any(const std::vector<std::string>& patterns, const std::string& text);

// The number of engine threads: node.threads, or for "auto" one for every 8 NICs, at most half of the
// usable cores (the ranks need the others), at least 1.
int engine_threads(const Config& config, int nics, int usable_cores);

}  // namespace hdt
