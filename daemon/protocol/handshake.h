// handshake.h: what two daemons say first on every connection between them. Both send a Hello (version, who,
// what for, the public half of the node key, a nonce) and, once they have the other's, a Proof about the
// transcript:
//
//   "HDT handshake", the role of who proves, the binding of the channel, the dialer's Hello, the acceptor's
//
// It is an HMAC-SHA256 under the cluster key (32 bytes) and, behind it, an Ed25519 signature by the node key
// (64 bytes), which are different for the two ends and for each connection. Whether a name may have a node
// key is the Trust's to say (trust.h). Without a configured key the proof is empty; an end with a key refuses
// it, so either all daemons of a cluster have the key or none.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/protocol/node.h"
#include "daemon/protocol/trust.h"

namespace hdt::daemon {

inline constexpr uint32_t kPeerMagic = 0x48445450;  // "HDTP"
inline constexpr uint32_t kPeerVersion = 14;

// kNoRail: an end that does not dial has no rail of `link` left. Who dials gives up those that it still takes
// for good, as each end finds a dead one by its own time, and dials again.
enum class Purpose : uint8_t { kControl = 1, kRail = 2, kNoRail = 3 };

struct PeerHello {
  Purpose purpose = Purpose::kControl;
  NodeId node;
  std::string name;
  // Of rails and of the word that none is left:
  uint32_t engine = 0;        // between engines of this index
  uint32_t link = 0;          // number of the link between these engines, by who dials; they may have several
  uint32_t rail = 0;          // number in the dialer's list
  std::string group_class{};  // of the groups that use the link
  // Filled by the handshake itself.
  PublicKey key{};
  StartNonce start{};    // with it the key makes the node id
  bool lasting = false;  // the key is kept between starts
};

// What binds the handshake to the channel that carries it, such as a value that TLS exports; zero where there
// is nothing.
using ChannelBinding = std::array<std::byte, 32>;

class Handshake {
 public:
  enum class Role : uint8_t { kDialer, kAcceptor };
  // own.node is filled from `trust`.
  Handshake(Role role, PeerHello own, std::shared_ptr<Trust> trust);

  // Before a Hello of the peer has come. Both ends must have the same.
  void bind(const ChannelBinding& binding) { binding_ = binding; }

  // Messages to send now: the dialer's start. The acceptor stays silent until it has seen a valid Hello.
  std::vector<std::vector<std::byte>> start();
  // A message of the peer; returns the messages to send in answer. Failure: close the connection, saying why.
  Result<std::vector<std::vector<std::byte>>> on_message(std::span<const std::byte> message);
  // The peer's Hello has come.
  bool introduced() const { return state_ != State::kWaitHello; }
  bool done() const { return state_ == State::kDone; }
  const PeerHello& peer() const { return peer_; }

 private:
  enum class State : uint8_t { kWaitHello, kWaitProof, kDone };
  std::vector<uint8_t> transcript(Role of) const;
  Result<std::vector<std::byte>> proof() const;
  // Whether the other end's proof is one.
  Status check(std::span<const std::byte> proof) const;

  Role role_;
  std::shared_ptr<Trust> trust_;
  ChannelBinding binding_{};
  std::vector<std::byte> own_bytes_, peer_bytes_;
  PeerHello peer_;
  Status nonce_status_;
  State state_ = State::kWaitHello;
};

}  // namespace hdt::daemon
