// config_keys.cc: the table of keys, the checks of their values, and look-ups in the table. A new key is
// one row here and one member in config.h; everything else follows from the table.
#include "base/config_keys.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <numeric>

namespace hdt::config {
namespace {

// Limits that several rows share.
constexpr int64_t kMaxTextBytes = 1024;
constexpr int64_t kMaxListEntries = 64;
constexpr int64_t kMaxTimeoutMs = 3'600'000;  // an hour
constexpr int64_t kMaxSocketPathBytes = 107;  // sockaddr_un's limit, without the closing zero

// Checks for the `valid` column. Each looks at one text, or at one entry of a list.
bool is_address(const std::string& text) {
  unsigned char address[sizeof(in6_addr)];
  return inet_pton(AF_INET, text.c_str(), address) == 1 || inet_pton(AF_INET6, text.c_str(), address) == 1;
}
bool is_absolute(const std::string& text) { return text.starts_with('/'); }
bool is_absolute_or_empty(const std::string& text) { return text.empty() || is_absolute(text); }
bool is_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
  });
}
bool is_not_empty(const std::string& text) { return !text.empty(); }
// The names of transports/secure/secure.h, which this layer may not include.
bool is_protection(const std::string& text) { return text == "none" || text == "mac" || text == "encrypt"; }
bool is_checksum(const std::string& text) { return text == "none" || text == "crc32c"; }
// The names of collectives/schedule.h, which this layer may not include.
bool is_algorithm(const std::string& text) {
  constexpr const char* kNames[] = {
      "auto",  "ring",     "halving_doubling", "recursive_doubling", "double_binary_tree",
      "bruck", "pairwise", "two_level"};
  return std::find(std::begin(kNames), std::end(kNames), text) != std::end(kNames);
}
bool is_priority(const std::string& text) { return text == "bulk" || text == "latency"; }
bool is_level(const std::string& text) { return parse_log_level(text).has_value(); }

// std::vector under a name without a comma or a namespace, for the macro below.
template <typename T>
using List = std::vector<T>;

// Shorthand for the accessors below: a field of a fixed section.
#define HDT_FIELD(type, member) Field<type>([](Config& c, const std::string&) -> type& { return c.member; })

// Columns: section, key, place of the value, lowest, highest, check, whether "auto" is a value, what an
// error says was expected, help. Keys of a section are consecutive; print-out and reference keep this
// order. The help texts are the reference (docs/reference), so they address the operator.
const Key kKeys[] = {
    {"node", "name", HDT_FIELD(std::string, node.name), 1, 64, is_name, false,
     "1 to 64 letters, digits, '.', '-' or '_'",
     "Name of this node in logs and at its peers. Default: the host name."},
    {"node", "socket", HDT_FIELD(std::string, node.socket), 1, kMaxSocketPathBytes, is_absolute, false,
     "an absolute path of at most 107 bytes", "Socket on which the processes of this node reach the daemon."},
    {"node", "threads", HDT_FIELD(int64_t, node.threads), 1, 64, nullptr, true,
     "\"auto\" or an integer 1..64",
     "Engine threads. \"auto\": one for every 8 NICs, at most half of the usable cores, at least 1."},

    {"node", "state_folder", HDT_FIELD(std::string, node.state_folder), 0, kMaxTextBytes,
     is_absolute_or_empty, false, "an absolute path, or \"\"",
     "Folder, which must exist, for what is kept between runs: measurements.json, with what was measured of "
     "this node and its links; with a cluster key also node.key, by which other nodes know this one, and "
     "known_nodes. \"\": nothing is kept."},

    {"nics", "use", HDT_FIELD(List<std::string>, nics.use), 1, kMaxListEntries, is_not_empty, false,
     "a list of 1 to 64 NIC names or patterns, e.g. [\"eth*\"]",
     "NICs to use, by name; * ? [...] are patterns."},
    {"nics", "exclude", HDT_FIELD(List<std::string>, nics.exclude), 0, kMaxListEntries, is_not_empty, false,
     "a list of at most 64 NIC names or patterns, e.g. [\"docker*\"]",
     "NICs to leave out of those that a pattern in `use` selects. A name written out in `use` is used all "
     "the same."},
    {"nics", "addresses", HDT_FIELD(List<std::string>, nics.addresses), 0, kMaxListEntries, is_address, false,
     "a list of at most 64 IPv4 or IPv6 addresses, e.g. [\"10.0.0.1\"]",
     "Addresses to listen on and connect from, in place of those of the NICs that `use` and `exclude` "
     "select."},
    {"nics", "port", HDT_FIELD(int64_t, nics.port), 0, 65'535, nullptr, false, "an integer 0..65535",
     "Port on which other daemons reach this one. 0: any free one."},

    {"security", "cluster_key_file", HDT_FIELD(std::string, security.cluster_key_file), 0, kMaxTextBytes,
     is_absolute_or_empty, false, "an absolute path, or \"\"",
     "File with the key that all daemons of the cluster share and prove to each other; `hdtctl key new` "
     "makes "
     "one. \"\": there is none, and only daemons of the same host are peers, unless security.insecure is "
     "true."},
    {"security", "insecure", HDT_FIELD(bool, security.insecure), 0, 1, nullptr, false, "true or false",
     "Without a cluster key: whether other hosts may be peers all the same. Then whoever reaches this node's "
     "ports is one, and can read and change what groups send: for networks that nobody else reaches."},
    {"security", "nodes_file", HDT_FIELD(std::string, security.nodes_file), 0, kMaxTextBytes,
     is_absolute_or_empty, false, "an absolute path, or \"\"",
     "List of the cluster's nodes, a line \"NAME PUBLICKEY\" each, as `hdtctl key new --node` prints them: "
     "with a "
     "cluster key, who is not in it is no peer. \"\": a name belongs to the node key that it was first seen "
     "with "
     "(known_nodes in node.state_folder)."},
    {"security", "allow_groups", HDT_FIELD(List<std::string>, security.allow_groups), 0, kMaxListEntries,
     is_name, false, "a list of at most 64 names of user groups, e.g. [\"hdt\"]",
     "User groups that may use the socket, besides root and the daemon's own user. []: every local user."},

    {"security", "transport", HDT_FIELD(std::string, security.transport), 1, kMaxTextBytes, is_protection,
     false, "\"none\", \"mac\" or \"encrypt\"",
     "What protects the payload between nodes over tcp, the same on all nodes; needs a cluster key. "
     "\"mac\": nobody on the way can change it; \"encrypt\": nor read it. Control connections are encrypted "
     "wherever there is a key; other backends are protected by their network alone."},

    {"timeouts", "connect_ms", HDT_FIELD(int64_t, timeouts.connect_ms), 1, kMaxTimeoutMs, nullptr, false,
     "an integer 1..3600000", "How long a connection to another daemon may take, handshake included, in ms."},
    {"timeouts", "drain_ms", HDT_FIELD(int64_t, timeouts.drain_ms), 0, kMaxTimeoutMs, nullptr, false,
     "an integer 0..3600000", "How long operations under way may still take after SIGTERM, in ms."},
    {"timeouts", "restart_ms", HDT_FIELD(int64_t, timeouts.restart_ms), 0, kMaxTimeoutMs, nullptr, false,
     "an integer 0..3600000",
     "How long processes and other nodes wait for this daemon to be started again when it was killed, in ms. "
     "0: its "
     "groups fail at once."},

    {"link", "checksum", HDT_FIELD(std::string, link.checksum), 1, kMaxTextBytes, is_checksum, false,
     "\"none\" or \"crc32c\"",
     "Checksum of what this node sends to others. A part that comes with a wrong one is sent again."},
    {"link", "stall_ms", HDT_FIELD(int64_t, link.stall_ms), 10, kMaxTimeoutMs, nullptr, false,
     "an integer 10..3600000",
     "A rail on which nothing has moved for so long, while another one receives from the peer, counts as "
     "lost, "
     "in ms."},
    {"link", "wait_ms", HDT_FIELD(int64_t, link.wait_ms), 0, kMaxTimeoutMs, nullptr, false,
     "an integer 0..3600000",
     "How long a link that lost all its rails waits for one to come back before its groups fail, in ms."},

    {"limits", "sessions", HDT_FIELD(int64_t, limits.sessions), 1, 1000000, nullptr, false,
     "an integer 1..1000000",
     "Processes that one user may have connected, at most half of the daemon's open files. For root and the "
     "daemon's "
     "own user no key of this section holds."},
    {"limits", "groups", HDT_FIELD(int64_t, limits.groups), 1, 1000000, nullptr, false,
     "an integer 1..1000000", "Groups of this node that one user may have."},
    {"limits", "seats", HDT_FIELD(int64_t, limits.seats), 1, 10000000, nullptr, false,
     "an integer 1..10000000",
     "Ranks that one user's processes may have in groups, or waiting for their groups, on this node."},
    {"limits", "making", HDT_FIELD(int64_t, limits.making), 1, 1000000, nullptr, false,
     "an integer 1..1000000", "Groups that ranks of one user may wait for at the same time on this node."},
    {"limits", "memories", HDT_FIELD(int64_t, limits.memories), 1, 1000000, nullptr, false,
     "an integer 1..1000000",
     "Allocations of hdtMemAlloc that one user may have shared, each counted for every group it is used in."},
    {"limits", "memory_mib", HDT_FIELD(int64_t, limits.memory_mib), 1, 1000000000, nullptr, false,
     "an integer 1..1000000000", "Size of all allocations that one user has shared, in MiB."},
    {"limits", "listeners", HDT_FIELD(int64_t, limits.listeners), 1, 10000, nullptr, false,
     "an integer 1..10000",
     "Meeting places (HDT_RENDEZVOUS, MASTER_ADDR) at which the daemon listens for one user's jobs."},
    {"limits", "questions", HDT_FIELD(int64_t, limits.questions), 1, 10000, nullptr, false,
     "an integer 1..10000",
     "Questions of one user's hdtctl that are answered at the same time; of one process one."},
    {"limits", "unread", HDT_FIELD(int64_t, limits.unread), 1, 1000000, nullptr, false,
     "an integer 1..1000000",
     "Answers with descriptors that one user's processes have not read; one for each process is not "
     "counted."},
    {"limits", "log_lines_per_s", HDT_FIELD(int64_t, limits.log_lines_per_s), 1, 100000, nullptr, false,
     "an integer 1..100000", "Lines a second that one user may cause in the log; others are counted."},
    {"limits", "hello_ms", HDT_FIELD(int64_t, limits.hello_ms), 100, 3600000, nullptr, false,
     "an integer 100..3600000", "How long a process may stay connected before its first message, in ms."},
    {"limits", "strangers", HDT_FIELD(int64_t, limits.strangers), 2, 100000, nullptr, false,
     "an integer 2..100000",
     "Connections from the network that have not shown yet which daemon makes them, of each engine's backend "
     "and of "
     "the control thread; beyond it the oldest one of the address that has the most is closed."},
    {"limits", "strangers_per_address", HDT_FIELD(int64_t, limits.strangers_per_address), 1, 100000, nullptr,
     false, "an integer 1..100000", "Such connections from one address; beyond it its oldest one is closed."},

    {"log", "level", HDT_FIELD(std::string, log.level), 1, kMaxTextBytes, is_level, false,
     "\"trace\", \"debug\", \"info\", \"warn\" or \"error\"",
     "Minimum level of the messages that are logged."},
    {"log", "file", HDT_FIELD(std::string, log.file), 0, kMaxTextBytes, is_absolute_or_empty, false,
     "an absolute path, or \"\"", "File to append the log to. \"\": standard error."},

    {kClassSection, "backends",
     Field<List<std::string>>(
         [](Config& c, const std::string& name) -> List<std::string>& { return c.classes[name].backends; }),
     1, kMaxListEntries, is_backend_name, false,
     "a list of 1 to 64 names of backends, e.g. [\"rdma\", \"tcp\"]",
     "Backends for groups of this class, best first: each pair of nodes takes the first one that connects "
     "them. "
     "\"tcp\" is built in, others are modules; `hdtctl backends` shows which can be used. \"shm\" alone: all "
     "ranks "
     "must be on one node."},
    {kClassSection, "nics",
     Field<List<std::string>>(
         [](Config& c, const std::string& name) -> List<std::string>& { return c.classes[name].nics; }),
     1, kMaxListEntries, is_not_empty, false,
     "a list of 1 to 64 NIC names, addresses or patterns, e.g. [\"eth1\"]",
     "NICs for groups of this class, of those that [nics] selects, by name or address; * ? [...] are "
     "patterns."},
    {kClassSection, "algorithm", Field<std::string>([](Config& c, const std::string& name) -> std::string& {
       return c.classes[name].algorithm;
     }),
     1, kMaxTextBytes, is_algorithm, false,
     "\"auto\", \"ring\", \"halving_doubling\", \"recursive_doubling\", \"double_binary_tree\", \"bruck\", "
     "\"pairwise\" or \"two_level\"",
     "Algorithm of collectives between nodes, the same on all nodes of a group; where a call cannot take it, "
     "as with \"auto\". `hdtctl explain` shows which one a call takes, and why."},
    {kClassSection, "priority", Field<std::string>([](Config& c, const std::string& name) -> std::string& {
       return c.classes[name].priority;
     }),
     1, kMaxTextBytes, is_priority, false, "\"bulk\" or \"latency\"",
     "\"latency\": on NICs that several classes use, what groups of this class send goes before what others "
     "send, at the "
     "next chunk; meant for little traffic, as nothing is left to others while there is more."},
    {kClassSection, "weight",
     Field<int64_t>([](Config& c, const std::string& name) -> int64_t& { return c.classes[name].weight; }), 1,
     1000, nullptr, false, "an integer 1..1000",
     "Share of a NIC beside other bulk classes that want to send at the same time: 3 gets three times as "
     "much as 1."},
};
#undef HDT_FIELD

// The Levenshtein distance of two texts, by the row-wise algorithm of Wagner and Fischer: row[j] is the
// distance of the part of `a` that was read to the first j characters of `b`.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::span<const Key> keys() { return kKeys; }

bool is_backend_name(const std::string& text) {
  return !text.empty() && text.size() <= kMaxClassNameBytes &&
         std::islower(static_cast<unsigned char>(text[0])) != 0 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) {
           return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '_';
         });
}

const Key* find_key(const std::string& section, const std::string& name) {
  for (const Key& key : kKeys) {
    if (section == key.section && name == key.name) return &key;
  }
  return nullptr;
}

bool is_section(const std::string& section) {
  return section == kBackendSection || std::any_of(std::begin(kKeys), std::end(kKeys),
                                                   [&](const Key& key) { return section == key.section; });
}

std::string full_name(const std::string& section, const std::string& class_name, const std::string& key) {
  std::string name = section;
  for (const std::string& part : {class_name, key}) {
    if (!part.empty()) name += "." + part;
  }
  return name;
}

std::string variable_name(const std::string& full_name) {
  std::string variable = "HDT_" + full_name;
  for (char& c : variable) {
    c = std::isalnum(static_cast<unsigned char>(c)) != 0
            ? static_cast<char>(std::toupper(static_cast<unsigned char>(c)))
            : '_';
  }
  return variable;
}

// Compares full names, so that a wrong section counts as a distance, too. Names whose lengths differ by more
// than may be wrong are not compared: the distance is at least that, and the time of a comparison grows with
// both lengths. A file of long keys that do not exist took seconds otherwise.
std::string suggestion(const std::string& section, const std::string& class_name, const std::string& key) {
  const std::string written = full_name(section, class_name, key).substr(0, kMaxTextBytes);
  // A third of the characters may differ, and always two.
  const size_t near_enough = std::max<size_t>(2, written.size() / 3);
  std::string best;
  size_t best_distance = near_enough + 1;
  for (const Key& candidate : kKeys) {
    const bool of_class = std::string(candidate.section) == kClassSection;
    const bool named = !class_name.empty() && class_name.size() <= kMaxClassNameBytes;
    const std::string name =
        full_name(candidate.section, of_class ? (named ? class_name : "NAME") : "", candidate.name);
    // The right key in the wrong section is as good a guess as a small slip.
    const size_t longer = std::max(written.size(), name.size()) - std::min(written.size(), name.size());
    if (key != candidate.name && longer >= best_distance) continue;
    const size_t distance = key == candidate.name ? 1 : edit_distance(written, name);
    if (distance < best_distance) {
      best_distance = distance;
      best = name;
    }
  }
  return best_distance <= near_enough ? "; did you mean " + best + "?" : "";
}

}  // namespace hdt::config
