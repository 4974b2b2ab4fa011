// secure_start.h: the beginning of a connection that is protected, after the test of the path: both say which
// protection they are set to and which node they are, and exchange keys (transports/secure):
//
//   dialer                                    acceptor
//   kOpening (protection, name), kExchange -->
//                                         <-- kOpening (protection, name), kExchange
//   kExchange                             -->
//
// All after that is sealed. What was said in the clear goes into the keys, so a change of it is found out. An
// acceptor that is set to something else says so in a refusal, and nothing falls back to less.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "transports/secure/secure.h"
#include "transports/tcp/frame.h"

namespace hdt::transport::tcp {

class SecureStart {
 public:
  enum class Pump : uint8_t { kDone, kBlocked, kFailed };  // kFailed: errno is set

  SecureStart(std::shared_ptr<const secure::Security> security, secure::Role role)
      : security_(std::move(security)), role_(role) {}

  // The dialer's first words are queued.
  Status begin();
  // A kSecure frame of the peer has come in full. A failure with kConfig is to be told to the peer.
  Status on_frame(const FrameHeader& header, std::span<const std::byte> content);
  // What the end that accepts says to a peer that sends anything else in place of it.
  Status unprotected() const;
  // Sends what is queued.
  Pump pump(int fd);
  bool pending() const { return sent_ < out_.size(); }
  // The keys are there, once; what is queued must go before anything that is sealed.
  bool done() const { return session_.sealer != nullptr; }
  secure::Session take() { return std::move(session_); }

 private:
  Status on_opening(const FrameHeader& header, std::span<const std::byte> content);
  Status exchange(std::span<const std::byte> from_peer);
  void push_opening();
  void push(const FrameHeader& header, std::span<const std::byte> content);

  std::shared_ptr<const secure::Security> security_;
  secure::Role role_;
  std::unique_ptr<secure::KeyExchange> keys_;  // null: nothing has begun
  bool peer_opened_ = false;
  std::string peer_name_;                                     // as it says
  std::vector<std::byte> said_by_dialer_, said_by_acceptor_;  // in the clear
  std::vector<std::byte> out_;
  size_t sent_ = 0;
  secure::Session session_;
};

// What an end that has no Security says to a peer that begins a protected connection.
Status protected_by_peer_only();

}  // namespace hdt::transport::tcp
