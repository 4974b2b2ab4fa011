// trust.cc: the files of a daemon's identity, and the decision whether a name may have a key. Files in
// the state folder: node.key (this node's secret key), known_nodes (the public keys of others).
#include "daemon/protocol/trust.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/atomic_file.h"
#include "base/clock.h"
#include "base/hmac.h"
#include "base/secret_file.h"
#include "base/unique_fd.h"
#include "base/users.h"

namespace hdt::daemon {

namespace {

// Limits of the files, in bytes. All are far above what they need.
constexpr size_t kMinKeyBytes = 16;
constexpr size_t kMaxKeyBytes = 4096;
constexpr size_t kMaxNodeKeyBytes = 256;
constexpr size_t kMaxNodesBytes = size_t{4} << 20;
constexpr size_t kMaxNodes = 16'384;
// of a public key, in messages: enough for people to compare
constexpr size_t kShownDigits = 16;
// How long keep() waits for another daemon that writes the file, and how often it looks. Control's thread
// waits.
constexpr int64_t kLockMs = 500;
constexpr useconds_t kLockAgainUs = 5'000;
constexpr mode_t kKnownMode = 0600;
// The first lines of known_nodes.
constexpr char kKnownHead[] =
    "# Nodes and their keys, as they were seen first (SECURITY.md). Remove the line of a node that was "
    "installed anew.\n";
// Separates this use of SHA-256 from others.
constexpr char kNodeIdText[] = "HDT node id";

// For messages only. Decisions always compare whole keys.
std::string shown(const PublicKey& key) { return hex_text(key).substr(0, kShownDigits); }

// The key in the state folder. It is made if there is none.
Result<SigningKey> lasting_key(const std::string& path) {
  bool missing = false;
  auto text = read_secret_file(path, kMaxNodeKeyBytes, &missing);
  if (missing) {
    auto fresh = SigningKey::make();
    if (!fresh.is_ok()) return fresh.status();
    const Status made = make_secret_file(path, fresh.value().text() + "\n");
    // kInvalidUsage: the file appeared meanwhile. Another daemon of the same folder was faster; then its
    // key counts for both.
    if (!made.is_ok() && made.code() != Code::kInvalidUsage) return made;
    if (made.is_ok()) return fresh;
    text = read_secret_file(path, kMaxNodeKeyBytes);
  }
  if (!text.is_ok()) return text.status();
  auto key = SigningKey::parse(text.value());
  if (!key.is_ok()) return Status(key.status().code(), path + ": " + key.status().message());
  return key;
}

// The lock by which daemons of one state folder wait for each other. It is a file of its own, since the
// file that it protects is replaced. It ends with the descriptor. kSystem: another process has held it for
// too long.
Result<UniqueFd> lock_of_all(const std::string& path) {
  UniqueFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, kKnownMode));
  if (!file.valid()) return Status::from_errno("opening " + path, errno);
  const Deadline deadline = Deadline::after_ms(kLockMs);
  while (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return Status::from_errno("locking " + path, errno);
    if (deadline.expired())
      return Status(Code::kSystem,
                    fmt::format("{}: another process holds the lock, for {} ms", path, kLockMs));
    ::usleep(kLockAgainUs);
  }
  return file;
}

// The text of a list of nodes, at most one byte more than it may have; "" if the file does not exist.
Result<std::string> read_list(const std::string& path) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    if (errno == ENOENT) return std::string();
    return Status::from_errno("reading " + path, errno);
  }
  // A list that others could write would let them choose who is a peer.
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
    return Status(Code::kConfig, path + ": expected a regular file");
  if ((info.st_uid != 0 && !is_this_user(info.st_uid)) || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return Status(
        Code::kConfig,
        fmt::format("{}: others than root and this daemon's user can write it: chown {} {}; chmod go-w {}",
                    path, ::geteuid(), path, path));
  }
  // Limited, so that a wrong file (a log) does not take all memory.
  std::string text(kMaxNodesBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return Status::from_errno("reading " + path, errno);
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

// A later line of the same name counts.
Result<std::map<std::string, PublicKey>> parse_nodes(const std::string& path, const std::string& text) {
  std::map<std::string, PublicKey> nodes;
  std::istringstream lines(text);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string name, key_text, more;
    words >> name >> key_text;
    PublicKey key{};
    if (text.size() > kMaxNodesBytes || nodes.size() >= kMaxNodes || words >> more ||
        name.size() > kMaxName || !parse_hex(key_text, key)) {
      return Status(
          Code::kConfig,
          fmt::format("{}:{}: expected \"NAME KEY\" with a key of 64 hexadecimal digits, of at most {} nodes",
                      path, number, kMaxNodes));
    }
    nodes[name] = key;
  }
  return nodes;
}

}  // namespace

// The id is the hash of the key and of a number that is drawn at each start. So a daemon that is started
// again has another id, and whoever proves the key proves the id as well.
Result<NodeId> node_id_of(const PublicKey& key, const StartNonce& start) {
  std::vector<uint8_t> text(kNodeIdText, kNodeIdText + sizeof kNodeIdText);
  text.insert(text.end(), key.begin(), key.end());
  for (const std::byte byte : start) text.push_back(static_cast<uint8_t>(byte));
  const auto digest = sha256(text);
  if (!digest.is_ok()) return digest.status();
  NodeId id;
  std::memcpy(id.bytes.data(), digest.value().data(), id.bytes.size());
  return id;
}

// An error keeps the daemon from starting: it would otherwise run with another identity, or with other
// peers, than its administrator has configured.
Result<std::shared_ptr<Trust>> Trust::open(const Options& options) {
  // Without a cluster key nothing is proved, so a node key is not worth keeping.
  // 1. The node key: from the state folder, or made for this run.
  const bool lasting = !options.cluster_key.empty() && !options.state_folder.empty();
  auto key = lasting ? lasting_key(options.state_folder + "/node.key") : SigningKey::make();
  if (!key.is_ok()) return key.status();
  std::shared_ptr<Trust> trust(new Trust(options, key.take(), lasting));
  // 2. The node id of this start.
  HDT_RETURN_IF_ERROR(random_bytes({reinterpret_cast<uint8_t*>(trust->start_.data()), trust->start_.size()}));
  const auto id = node_id_of(trust->key_.public_key(), trust->start_);
  if (!id.is_ok()) return id.status();
  trust->node_ = id.value();
  if (options.cluster_key.empty()) return trust;
  // 3. The keys of other nodes. An empty list is an error: with it no node could be a peer.
  if (trust->is_listed() || lasting) {
    auto known = read_nodes(trust->is_listed() ? options.nodes_file : trust->known_path());
    if (!known.is_ok()) return known.status();
    trust->known_ = known.take();
    if (trust->is_listed() && trust->known_.empty())
      return Status(Code::kConfig,
                    "security.nodes_file: " + options.nodes_file + " names no node, so there are no peers");
  }
  return trust;
}

// Called by the control thread and by engines, hence the lock. Files are read under it, which is rare: only
// for a name that is new or has another key.
Status Trust::check(const std::string& name, const PublicKey& key, bool lasting) {
  // 1. A known name with the same key: accepted.
  // 2. Otherwise the file is read again, as an administrator may have changed it. With known_nodes this
  //    is done only for a known name with another key: the repair that the error below proposes takes
  //    effect without a restart.
  // 3. With a list: refused. Without: a known name with another key is refused, too.
  // 4. A new name: accepted, and remembered if its key is lasting and there is room.
  std::function<void()> call;
  {
    const std::lock_guard lock(mutex_);
    auto found = known_.find(name);
    if (found == known_.end() || found->second != key) {
      // Names that this daemon has remembered and not written yet survive the reading. Where both have a
      // name, the file counts.
      if (is_listed() || (lasting_ && found != known_.end())) {
        auto again = read_nodes(is_listed() ? options_.nodes_file : known_path());
        if (again.is_ok()) {
          for (const std::string& unkept : unkept_) again.value().emplace(unkept, known_.at(unkept));
          known_ = again.take();
        }
        found = known_.find(name);
      }
    }
    if (found != known_.end() && found->second == key) return Status::ok();
    if (is_listed()) {
      return {
          Code::kConfig,
          found == known_.end()
              ? fmt::format("node {} is not in security.nodes_file ({})", name, options_.nodes_file)
              : fmt::format("node {} has another node key ({}...) than security.nodes_file ({}) says ({}...)",
                            name, shown(key), options_.nodes_file, shown(found->second))};
    }
    if (found != known_.end()) {
      // The daemon cannot know which of the two it is; the text names both, with what to do about the
      // harmless one.
      const std::string mend = lasting_ ? "remove its line from " + known_path() : "start this daemon again";
      return {Code::kConfig,
              fmt::format("node {} has another node key ({}...) than before ({}...): if the node was "
                          "installed anew, {}; else another machine poses as it",
                          name, shown(key), shown(found->second), mend)};
    }
    // A key that does not last is not remembered, or the node could not come back after its next start.
    if (!lasting || known_.size() >= kMaxNodes) return Status::ok();
    known_.emplace(name, key);
    unkept_.insert(name);
    call = on_new_;
  }
  // Outside of the lock, so that the callee may call check() or keep().
  if (call) call();
  return Status::ok();
}

// Called once, before any connection is made; the callee asks another thread to call keep().
void Trust::on_new(std::function<void()> call) {
  const std::lock_guard lock(mutex_);
  on_new_ = std::move(call);
}

// Several daemons of one user may have this state folder, and an administrator may edit the file. So the new
// names are added to what stands in the file now; its other lines, and the remarks, stay as they are.
//
// 1. Find what is new, under the mutex. Writing may take long, so the rest is done without it.
// 2. The lock of all daemons of the folder, so that none adds lines to a text that another one replaces.
// 3. The file's text, with the new names behind it. A file that cannot be read is not written over: its
//    author would lose it.
// 4. The new file takes the place of the old one, so that a reader finds either of them whole.
// 5. Afterwards known_ holds the nodes of the file, and those that check() has added meanwhile. These stay in
//    unkept_ and need another keep().
Status Trust::keep() {
  if (!lasting_ || is_listed()) return Status::ok();
  std::map<std::string, PublicKey> added;
  {
    const std::lock_guard lock(mutex_);
    for (const std::string& name : unkept_) added.emplace(name, known_.at(name));
  }
  // An earlier call has written those for which this one was asked.
  if (added.empty()) return Status::ok();
  const auto lock = lock_of_all(known_path() + ".lock");
  if (!lock.is_ok()) return lock.status();
  auto read = read_list(known_path());
  if (!read.is_ok()) return read.status();
  std::string text = read.value().empty() ? kKnownHead : read.take();
  if (!text.ends_with('\n')) text += '\n';
  auto nodes = parse_nodes(known_path(), text);
  if (!nodes.is_ok()) return nodes.status();
  const size_t before = text.size();
  for (const auto& [name, key] : added) {
    const std::string line = node_line(name, key);
    // A file beyond the limits would keep the daemon from starting.
    if (nodes.value().size() >= kMaxNodes || text.size() + line.size() > kMaxNodesBytes) break;
    // Where the file has the name already, it counts.
    if (nodes.value().emplace(name, key).second) text += line;
  }
  if (text.size() != before) HDT_RETURN_IF_ERROR(write_file_atomically(known_path(), text, kKnownMode));
  const std::lock_guard guard(mutex_);
  for (const auto& [name, key] : added) unkept_.erase(name);
  for (const std::string& name : unkept_) nodes.value().emplace(name, known_.at(name));
  known_ = nodes.take();
  return Status::ok();
}

// An empty name is no error: then there is no cluster key. The file must be readable by this user only
// (read_secret_file()).
Result<std::string> load_cluster_key(const std::string& file) {
  if (file.empty()) return std::string();
  auto key = read_secret_file(file, kMaxKeyBytes);
  if (!key.is_ok()) return Status(Code::kConfig, "security.cluster_key_file: " + key.status().message());
  // A short key could be found by trying.
  if (key.value().size() < kMinKeyBytes) {
    return Status(
        Code::kConfig,
        fmt::format("security.cluster_key_file: {} must hold {} to {} bytes; `hdtctl key new` makes one",
                    file, kMinKeyBytes, kMaxKeyBytes));
  }
  return key;
}

// The form that read_nodes() reads and that `hdtctl key new --node` prints.
std::string node_line(const std::string& name, const PublicKey& key) {
  return name + " " + hex_text(key) + "\n";
}

Result<std::map<std::string, PublicKey>> read_nodes(const std::string& path) {
  const auto text = read_list(path);
  if (!text.is_ok()) return text.status();
  return parse_nodes(path, text.value());
}

}  // namespace hdt::daemon
