// trust.h: the identity that a daemon proves, and which identities it accepts from others.
//
// With a cluster key each daemon proves two things in the handshake: that it knows the cluster key, which
// all daemons of a cluster have in common, and that it has the node key (Ed25519) of the node whose name
// it states. So whoever has the files of one node cannot pose as another one. A name is bound to a node
// key by one of:
// - the list of nodes (security.nodes_file), lines "NAME PUBLICKEY" that an administrator wrote (`hdtctl
//   key new --node`). If there is a list, nobody else is a peer;
// - otherwise the key that was seen first: `known_nodes` in the state folder, in the same form. This
//   daemon extends the file, as ssh does with known_hosts.
//
// A daemon without a state folder has a node key that lasts as long as its process. Others do not
// remember such a key; they accept any such key under a name that no lasting key has. A node id is new at
// each start. It is a hash of the node key and a nonce, so nobody can take over another node's id.
//
// Without a cluster key nothing is proved and nothing is remembered.
//
// Owner: Control makes one and shares it with the engines and the control network, as all of them do
// handshakes. Thread-safe.
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

// Drawn at each start of a daemon; public.
using StartNonce = std::array<std::byte, 16>;

// The node id of the daemon with this public key that has drawn this nonce at its start: a part of their
// hash. kSystem if OpenSSL refuses.
Result<NodeId> node_id_of(const PublicKey& key, const StartNonce& start);

class Trust {
 public:
  struct Options {
    // the key's text; "": there is none
    std::string cluster_key;
    // holds node.key and known_nodes; "": nothing is kept
    std::string state_folder;
    // "": there is no list
    std::string nodes_file;
  };
  // Reads or makes the node key, draws the nonce, and reads the list or known_nodes. kConfig: a file is
  // not as it must be, or the list is empty; kSystem: a file cannot be read or written, or there is no
  // randomness.
  static Result<std::shared_ptr<Trust>> open(const Options& options);

  const std::string& cluster_key() const { return options_.cluster_key; }
  const SigningKey& key() const { return key_; }
  // Whether the node key is kept between starts. Others remember it only then.
  bool lasting() const { return lasting_; }
  const NodeId& node() const { return node_; }
  const StartNonce& start() const { return start_; }

  // Decides whether a node of this name may have this key. `lasting` is what the node states of its key.
  // kConfig says why not. A lasting key under a name that is not known yet is accepted and remembered.
  // Call it only after the node has proved that it has the key. May read a file.
  Status check(const std::string& name, const PublicKey& key, bool lasting);
  // Sets what check() calls when it has remembered a node, on check()'s thread and outside of the lock.
  // The callee arranges that keep() is called soon, on a thread that may write files.
  void on_new(std::function<void()> call);
  // Adds the nodes that are new to known_nodes, and replaces the file in one step. Other lines of the file
  // stay as they are, and take effect. One thread at a time; waits half a second at most for another daemon
  // that writes the file. kSystem: it could not be written; kConfig: the file is not as it must be. The next
  // call writes it all.
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
  // guards what follows; the members above do not change after open()
  std::mutex mutex_;
  // the list, or known_nodes and what check() has remembered since
  std::map<std::string, PublicKey> known_;
  // names in known_ that are not in the file yet
  std::set<std::string> unkept_;
  std::function<void()> on_new_;
};

// The text of a cluster key's file, 16 to 4096 bytes; "" if `file` is "". kConfig: the file is missing,
// too short or long, or others may read it.
Result<std::string> load_cluster_key(const std::string& file);
// A line "NAME PUBLICKEY" of a list of nodes or of known_nodes, with its line's end.
std::string node_line(const std::string& name, const PublicKey& key);
// Reads a list of nodes or known_nodes. Empty lines and those that begin with '#' are skipped. Empty if
// the file does not exist. kConfig: a line is malformed, or others than root and this user may write the
// file.
Result<std::map<std::string, PublicKey>> read_nodes(const std::string& path);

}  // namespace hdt::daemon
