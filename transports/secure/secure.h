// secure.h: what protects the bytes of a connection between two daemons that share a key. A KeyExchange (TLS
// 1.3 with a pre-shared key) proves the key and agrees on fresh ones; a Sealer and an Opener then protect one
// direction each, piece by piece. The tcp backend uses these interfaces alone; the implementation (tls.h) is
// the only part that needs OpenSSL.  Threads: a Security is immutable and may be shared by threads; all
// others belong to one connection.
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

// security.transport. The numbers are on the wire.
enum class Protection : uint8_t {
  kNone = 0,
  kMac = 1,      // what arrives is what was sent; everybody on the way can read it
  kEncrypt = 2,  // and nobody else can read it
};

const char* name_of(Protection protection);
std::optional<Protection> parse_protection(const std::string& text);

inline constexpr size_t kTagBytes = 16;
inline constexpr size_t kBindingBytes = 32;
using Tag = std::array<std::byte, kTagBytes>;
// The same at both ends of a connection, and of no other one: what is signed together with it cannot be used
// on another connection by somebody in the middle.
using Binding = std::array<std::byte, kBindingBytes>;

// The sending end of one direction. What is protected is a sequence of pieces; each is begin(), any number of
// update(), finish(). The other end opens the same pieces, in the same order, cut by update() as it likes.
// Each call is false where OpenSSL fails: nothing may be sent after that.
class Sealer {
 public:
  virtual ~Sealer() = default;
  // True: what is sent differs from what was given, and update() needs a place for it.
  virtual bool encrypts() const = 0;
  virtual bool begin() = 0;
  // What goes on the wire is written to `to`, which may be `from`. nullptr, where nothing is encrypted:
  // `from` goes on the wire as it is.
  virtual bool update(const std::byte* from, size_t bytes, std::byte* to) = 0;
  // The tag goes on the wire behind the piece.
  virtual bool finish(Tag& tag) = 0;
};

// The receiving end. What update() gives out is not to be trusted before finish() has accepted the tag.
class Opener {
 public:
  virtual ~Opener() = default;
  virtual bool encrypts() const = 0;
  virtual bool begin() = 0;
  // `to` may be `from`, or nullptr where nothing is encrypted.
  virtual bool update(const std::byte* from, size_t bytes, std::byte* to) = 0;
  // False: the piece is not what the other end sealed as its next one. The connection must end.
  virtual bool finish(const Tag& tag) = 0;
};

// What both ends have once the exchange is done.
struct Session {
  std::unique_ptr<Sealer> sealer;
  std::unique_ptr<Opener> opener;
  Binding binding{};
};

enum class Role : uint8_t { kDialer, kAcceptor };

class KeyExchange {
 public:
  virtual ~KeyExchange() = default;
  // Takes what the other end sent (nothing, to begin as the dialer) and appends what is to be sent to it. Of
  // a failure the code is kConfig where the other end does not know the key, and the text says so.
  virtual Status advance(std::span<const std::byte> from_peer, std::vector<std::byte>& to_peer) = 0;
  virtual bool done() const = 0;
  // Once, when it is done. Ends that give different `context` bytes (what they said in the clear before) get
  // keys that do not fit.
  virtual Result<Session> session(std::span<const std::byte> context) = 0;
};

class Security {
 public:
  virtual ~Security() = default;
  virtual Protection protection() const = 0;
  // This node, in what the other end is told of a refusal.
  virtual const std::string& node_name() const = 0;
  virtual Result<std::unique_ptr<KeyExchange>> exchange(Role role) const = 0;
};

}  // namespace hdt::transport::secure
