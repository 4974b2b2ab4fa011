// secure_start.h: the beginning of a protected connection, after the path test. Both ends send the
// protection that they are configured for and the name of their node, and exchange keys
// (transports/secure):
//
//   dialer                                    acceptor
//   kOpening (protection, name), kExchange -->
//                                         <-- kOpening (protection, name), kExchange
//   kExchange                             -->
//
// Everything after that is sealed. The bytes sent in the clear go into the keys, so a change of them on
// the way is detected. An acceptor that is configured differently sends a refusal with the reason, and
// neither end falls back to less protection.
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

// One end of the exchange. Owned by its connection and used on its thread. It queues what is to be sent;
// the connection reads the peer's frames, and calls pump() to send.
class SecureStart {
 public:
  // kDone: everything queued is sent. kBlocked: the socket is full. kFailed: errno is set.
  enum class Pump : uint8_t { kDone, kBlocked, kFailed };  // kFailed: errno is set

  SecureStart(std::shared_ptr<const secure::Security> security, secure::Role role)
      : security_(std::move(security)), role_(role) {}

  // Begins the exchange; the dialer's first frames are queued. kSystem if OpenSSL fails.
  Status begin();
  // A kSecure frame of the peer has arrived in full. kConfig: the two ends are configured differently,
  // which the peer should be sent. kLink: the peer broke the protocol.
  Status on_frame(const FrameHeader& header, std::span<const std::byte> content);
  // The reason of an acceptor to refuse a peer that sends another frame in place of the exchange.
  Status unprotected() const;
  // Sends what is queued.
  Pump pump(int fd);
  bool pending() const { return sent_ < out_.size(); }
  // True when the keys are there and were not taken. Queued bytes must leave before anything sealed.
  bool done() const { return session_.sealer != nullptr; }
  // The keys; to be called once, when done().
  secure::Session take() { return std::move(session_); }

 private:
  // The peer's kOpening: compares the protection. The acceptor then begins its own part.
  Status on_opening(const FrameHeader& header, std::span<const std::byte> content);
  // Gives the peer's bytes to the key exchange, and queues its answer. Makes the Session when it is
  // done.
  Status exchange(std::span<const std::byte> from_peer);
  void push_opening();
  void push(const FrameHeader& header, std::span<const std::byte> content);

  std::shared_ptr<const secure::Security> security_;
  secure::Role role_;
  std::unique_ptr<secure::KeyExchange> keys_;  // null until begin()
  bool peer_opened_ = false;                   // the peer's kOpening has arrived
  std::string peer_name_;                      // as the peer gives it, made printable; proved by nothing
  std::vector<std::byte> said_by_dialer_, said_by_acceptor_;  // the kOpening frames, headers included
  std::vector<std::byte> out_;                                // queued bytes, whole frames
  size_t sent_ = 0;                                           // bytes of out_ that are sent
  secure::Session session_;
};

// The reason of an end without Security to refuse a peer that begins a protected connection.
Status protected_by_peer_only();

}  // namespace hdt::transport::tcp
