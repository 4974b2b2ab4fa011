// trust.h: what a daemon proves of itself, and whom it takes others for.
//
// With a cluster key each daemon proves two things in the handshake: that it knows the cluster key, which all
// daemons of a cluster have in common, and that it has the node key (Ed25519) of the node whose name it
// tells. So who has the files of one node cannot pose as another one. What ties a name to a node key:
//   - the list of nodes (security.nodes_file), lines "NAME PUBLICKEY" that an administrator wrote (`hdtctl
//     key new --node`): where there is one, nobody else is a peer;
//   - else what was seen first: `known_nodes` in the state folder, in the same form, which this daemon
//     extends, as ssh does.
// A daemon without a state folder has a node key that lasts as long as itself. It is not remembered; its name
// is nobody's as long as no lasting key has it. A node id is random, made anew at each start, and tied to the
// node key: nobody can take over another node's id.
//
// Thread-safe. Without a cluster key nothing is proved, and nothing is remembered.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "base/config.h"
#include "base/signing.h"
#include "base/status.h"
#include "daemon/protocol/node.h"

namespace hdt::daemon {

using StartNonce = std::array<std::byte, 16>;

// The node id of the daemon with this key that has drawn this nonce at its start.
Result<NodeId> node_id_of(const PublicKey& key, const StartNonce& start);

class Trust {
 public:
  struct Options {
    std::string cluster_key;
    std::string state_folder;  // "": nothing is kept
    std::string nodes_file;    // "": there is no list
  };
  static Result<std::shared_ptr<Trust>> open(const Options& options);

  const std::string& cluster_key() const { return options_.cluster_key; }
  const SigningKey& key() const { return key_; }
  // The key was read from the state folder or written there.
  bool lasting() const { return lasting_; }
  const NodeId& node() const { return node_; }
  const StartNonce& start() const { return start_; }

  // Whether a node of this name may have this key. `lasting`: as it says of its key. A new one is remembered.
  Status check(const std::string& name, const PublicKey& key, bool lasting);
  // Called when check() has remembered a node, by any thread: keep() is to be called soon, by one that may
  // write files.
  void on_new(std::function<void()> call);
  // Writes what was remembered.
  Status keep();

 private:
  Trust(Options options, SigningKey key, bool lasting)
      : options_(std::move(options)), key_(std::move(key)), lasting_(lasting) {}
  std::string known_path() const { return options_.state_folder + "/known_nodes"; }
  bool is_listed() const { return !options_.nodes_file.empty(); }

  const Options options_;
  const SigningKey key_;
  const bool lasting_;
  NodeId node_;
  StartNonce start_{};
  std::mutex mutex_;  // guards what follows
  std::map<std::string, PublicKey> known_;
  std::set<std::string> unkept_;  // of known_: not in the file yet
  std::function<void()> on_new_;
};

// The text of a cluster key's file, at least 16 bytes; "" for no file.
Result<std::string> load_cluster_key(const std::string& file);
// "NAME PUBLICKEY": of a list of nodes, and of known_nodes.
std::string node_line(const std::string& name, const PublicKey& key);
// A list of nodes. Empty where the file is not there.
Result<std::map<std::string, PublicKey>> read_nodes(const std::string& path);

}  // namespace hdt::daemon
