// handshake.h: what two daemons say first on every connection between them. Both send a Hello (version, who, what for, a
// nonce) and, once they have the other's, a Proof: HMAC-SHA256 over both Hellos under the cluster key, different for the
// two ends. Without a configured key the proof is empty; an end with a key refuses it, so either all daemons
// of a cluster have the key or none.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "daemon/node.h"

namespace hdt::daemon {

inline constexpr uint32_t kPeerMagic = 0x48445450;  // "HDTP"
inline constexpr uint32_t kPeerVersion = 12;

enum class Purpose : uint8_t { kControl = 1, kRail = 2 };

struct PeerHello {
  Purpose purpose = Purpose::kControl;
  NodeId node;
  std::string name;
  uint32_t engine = 0;  // rails: between engines of this index
  uint32_t link = 0;    // rails: the dialer's number of the link between these engines; they may have several
  uint32_t rail = 0;    // rails: number in the dialer's list
  std::string group_class{};  // rails: of the groups that use the link
};

class Handshake {
 public:
  enum class Role : uint8_t { kDialer, kAcceptor };
  Handshake(Role role, PeerHello own, std::string cluster_key);

  // Messages to send now: the dialer's start. The acceptor stays silent until it has seen a valid Hello.
  std::vector<std::vector<std::byte>> start();
  // A message of the peer; returns the messages to send in answer. Failure: close the connection, saying why.
  Result<std::vector<std::vector<std::byte>>> on_message(std::span<const std::byte> message);
  bool done() const { return state_ == State::kDone; }
  const PeerHello& peer() const { return peer_; }

 private:
  enum class State : uint8_t { kWaitHello, kWaitProof, kDone };
  Result<std::vector<std::byte>> proof(Role of) const;

  Role role_;
  std::string key_;
  std::vector<std::byte> own_bytes_, peer_bytes_;
  PeerHello peer_;
  Status nonce_status_;
  State state_ = State::kWaitHello;
};

// The contents of the file without trailing white space, at least 16 bytes; "" for no file.
Result<std::string> load_cluster_key(const std::string& file);

}  // namespace hdt::daemon
