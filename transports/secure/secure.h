// secure.h: the interfaces that protect the bytes of a connection between two daemons that share a key. A
// KeyExchange (TLS 1.3 with a pre-shared key) proves that both ends have the key, and agrees on fresh keys. A
// Sealer and an Opener then protect one direction each, piece by piece. The tcp backend, which also carries
// control connections, uses these interfaces alone; only the implementation (tls.h, seal.h) needs OpenSSL.
//
// The sequence at each end: Security::exchange(), then advance() with the peer's bytes until done(), then
// session() once, whose Sealer and Opener do the rest.
//
// Threads: a Security is immutable and may be shared by threads. All others belong to one connection and its
// thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace hdt::transport::secure {

// How bytes are protected (configuration: security.transport). The numbers are on the wire.
enum class Protection : uint8_t {
  kNone = 0,     // not at all
  kMac = 1,      // authenticated: a change on the way is detected, but everybody there can read the bytes
  kEncrypt = 2,  // authenticated and encrypted
};

// "none", "mac", "encrypt", and back. Nothing for another text.
const char* name_of(Protection protection);
std::optional<Protection> parse_protection(const std::string& text);

inline constexpr size_t kTagBytes = 16;
inline constexpr size_t kBindingBytes = 32;
// Authenticates one piece; sent behind it.
using Tag = std::array<std::byte, kTagBytes>;
// A channel binding (RFC 5056): bytes that both ends of this connection have, and no other connection. A
// proof that is signed together with them cannot be used on another connection by a man in the middle.
using Binding = std::array<std::byte, kBindingBytes>;

// The sending end of one direction. The protected bytes are a sequence of pieces. A piece is begin(), any
// number of update(), and finish(). The other end opens the same pieces in the same order; the cuts between
// its update() calls may differ. Each call returns false if OpenSSL fails; nothing may be sent after that.
class Sealer {
 public:
  virtual ~Sealer() = default;
  // True: the bytes on the wire differ from those given, and update() needs a place for them.
  virtual bool encrypts() const = 0;
  virtual bool begin() = 0;
  // Protects [from, from + bytes). The bytes for the wire are written to `to`, which may be `from`. `to` may
  // be nullptr if nothing is encrypted: the bytes at `from` are then sent as they are.
  virtual bool update(const std::byte* from, size_t bytes, std::byte* to) = 0;
  // Ends the piece. `tag` is to be sent behind it.
  virtual bool finish(Tag& tag) = 0;
};

// The receiving end of one direction. The bytes that update() gives out must not be used before finish() has
// accepted the tag.
class Opener {
 public:
  virtual ~Opener() = default;
  virtual bool encrypts() const = 0;
  virtual bool begin() = 0;
  // Writes the opened bytes to `to`, which may be `from`, or nullptr if nothing is encrypted.
  virtual bool update(const std::byte* from, size_t bytes, std::byte* to) = 0;
  // False: the piece is not the one that the other end sealed next; it was changed, left out, repeated or
  // moved. The connection must end.
  virtual bool finish(const Tag& tag) = 0;
};

// The keys of a protected connection, which each end has when the exchange is done.
struct Session {
  std::unique_ptr<Sealer> sealer;
  std::unique_ptr<Opener> opener;
  Binding binding{};
};

enum class Role : uint8_t { kDialer, kAcceptor };

// One end of a key exchange. It sends and receives nothing itself: the caller carries its bytes.
class KeyExchange {
 public:
  virtual ~KeyExchange() = default;
  // Takes bytes that the other end sent, and appends the bytes to be sent to it. The dialer begins with a
  // call without bytes. kConfig, with a text about it, if the other end does not have the same key; kLink for
  // any other failure of the exchange; kSystem without memory. After a failure the exchange cannot be
  // continued. TLS's alert is not given out: the caller refuses the peer in its own protocol.
  virtual Status advance(std::span<const std::byte> from_peer, std::vector<std::byte>& to_peer) = 0;
  virtual bool done() const = 0;
  // To be called once, when it is done; kInvalidUsage otherwise. `context`: what the two ends sent in the
  // clear before. Ends with different context bytes get keys that do not fit each other, so a change of those
  // bytes on the way is detected.
  virtual Result<Session> session(std::span<const std::byte> context) = 0;
};

// A cluster key and how it is used. Made once by the daemon (make_tls_security()) and shared by all
// connections.
class Security {
 public:
  virtual ~Security() = default;
  virtual Protection protection() const = 0;  // never kNone
  // The name of this node, for the refusal that the other end gets.
  virtual const std::string& node_name() const = 0;
  // Begins an exchange at the end of that role. kSystem if OpenSSL fails.
  virtual Result<std::unique_ptr<KeyExchange>> exchange(Role role) const = 0;
};

}  // namespace hdt::transport::secure
