// handshake.h: the handshake of two daemons on every connection between them, of control threads and of
// rails. Both send a Hello (version, who, what for, the public half of the node key, a nonce) and, once
// they have the peer's Hello, a Proof about the transcript:
//
//   "HDT handshake", the role of the prover, the channel binding, the dialer's Hello, the acceptor's
//
// The Proof is an HMAC-SHA256 of the transcript under the cluster key (32 bytes), followed by an Ed25519
// signature of the transcript by the node key (64 bytes). The role makes the proofs of the two ends
// different, so that a proof cannot be sent back to its author; the nonces make them different for each
// connection. Whether a name may have a node key is decided by Trust (trust.h). Without a configured key
// the Proof is empty. An end with a key refuses an empty one, and an end without a key any other, so
// either all daemons of a cluster have the key or none.
//
// The messages, in order:
//
//   dialer                           acceptor
//   start(): Hello          ->
//                           <-       Hello, Proof
//   Proof                   ->       done() if the Proof is right
//   done() if the Proof is right
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

// The first four bytes of a Hello's content. "HDTP"
inline constexpr uint32_t kPeerMagic = 0x48445450;
// Counted up with each change of any message between daemons: of the handshake, control_messages.h,
// wire.h, or the JSON of facts.h; and of any schedule (collectives/schedule.h), as all nodes of a group must
// run the same. Daemons of different versions refuse each other (kVersion).
inline constexpr uint32_t kPeerVersion = 21;

// The purpose of a connection.
// - kControl: messages of the control threads.
// - kRail: a rail of the link between two engines.
// - kNoRail: it carries no data. An end that does not dial informs the dialer that it has no rail of `link`
//   left. Each end finds out about a dead rail in its own time; the dialer gives up for good the rails
//   that it still takes for alive, and dials again.
enum class Purpose : uint8_t { kControl = 1, kRail = 2, kNoRail = 3 };

// The content of a Hello. Until done() it is only what the peer states of itself.
struct PeerHello {
  Purpose purpose = Purpose::kControl;
  NodeId node;
  std::string name;
  // The following four are meaningful with kRail and kNoRail only. index of the engine; a link connects
  // engines of the same index
  uint32_t engine = 0;
  // number of the link between these engines, given by the dialer; there may be several
  uint32_t link = 0;
  // number of the rail in the dialer's list
  uint32_t rail = 0;
  // the class of the groups that use the link
  std::string group_class{};
  // Filled by the handshake itself, like `node`.
  PublicKey key{};
  // the node id is a hash of `key` and this
  StartNonce start{};
  // the key is kept between the daemon's starts (Trust::lasting())
  bool lasting = false;
};

// A value that both ends of one protected channel have, and no other channel, such as one that TLS
// exports (channel_binding.h). All zeros: the channel has none.
using ChannelBinding = std::array<std::byte, 32>;

// One end of the handshake on one connection. It does no input or output: the owner of the connection
// passes messages in and sends what it returns. Not thread-safe; one thread at a time, that of the
// connection's owner.
class Handshake {
 public:
  enum class Role : uint8_t { kDialer, kAcceptor };
  // `own`: the content of this end's Hello. Its node, key, start and lasting come from `trust`. If no
  // nonce can be drawn, on_message() fails.
  Handshake(Role role, PeerHello own, std::shared_ptr<Trust> trust);

  // Call it before a Hello of the peer has come, if at all. Both ends must pass the same value, or
  // neither proof is right.
  void bind(const ChannelBinding& binding) { binding_ = binding; }

  // The messages to send when the connection is up: the dialer's Hello. None for the acceptor: it stays
  // silent until it has seen a valid Hello, and so reveals nothing to a stranger.
  std::vector<std::vector<std::byte>> start();
  // Handles a message of the peer. Returns the messages to send in answer, perhaps none. On failure close
  // the connection and log the reason; nothing is sent. kVersion: the peer is no HDT daemon, or one of
  // another version. kInvalidArgument: a malformed or unexpected message, or a node id that is not the
  // peer's. kConfig: the proof is wrong, or Trust does not accept the peer. kSystem: OpenSSL refuses.
  Result<std::vector<std::vector<std::byte>>> on_message(std::span<const std::byte> message);
  // Whether the peer's Hello has come. Nothing is proved yet.
  bool introduced() const { return state_ != State::kWaitHello; }
  // Whether the peer has proved who it is. If there is no cluster key, nothing was proved, only
  // exchanged.
  bool done() const { return state_ == State::kDone; }
  // The peer's Hello; all zeros and empty until introduced().
  const PeerHello& peer() const { return peer_; }

 private:
  enum class State : uint8_t { kWaitHello, kWaitProof, kDone };
  // The text that the end with role `of` makes its proof about.
  std::vector<uint8_t> transcript(Role of) const;
  // This end's proof.
  Result<std::vector<std::byte>> proof() const;
  // Checks the peer's proof. Codes as in on_message().
  Status check(std::span<const std::byte> proof) const;

  Role role_;
  std::shared_ptr<Trust> trust_;
  ChannelBinding binding_{};
  // the two Hellos as sent, for the transcript
  std::vector<std::byte> own_bytes_, peer_bytes_;
  PeerHello peer_;
  // why this end has no nonce; ok: it has one
  Status nonce_status_;
  State state_ = State::kWaitHello;
};

}  // namespace hdt::daemon
