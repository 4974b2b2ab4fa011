// secure_start.cc: one end of the key exchange of a connection; see secure_start.h.
#include "transports/tcp/secure_start.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hdt::transport::tcp {

namespace {

// Bytes of a node's name in a kOpening frame; a longer name is cut.
constexpr size_t kMaxName = 64;
// The end of both refusals.
constexpr char kMend[] = ": set the same security.cluster_key_file and security.transport on all nodes";

// The configuration's word for a protection; `protection` may be foreign.
std::string quoted(uint64_t protection) {
  const auto known = static_cast<secure::Protection>(std::min<uint64_t>(protection, UINT8_MAX));
  return std::string("\"") + secure::name_of(known) + "\"";
}

}  // namespace

// At each end the opening is queued before any bytes of the exchange. The dialer's exchange begins with
// a call without bytes; the acceptor begins when kOpening has arrived.
Status SecureStart::begin() {
  auto made = security_->exchange(role_);
  if (!made.is_ok()) return made.status();
  keys_ = made.take();
  push_opening();
  return role_ == secure::Role::kDialer ? exchange({}) : Status::ok();
}

// The frame is kept as it is sent, as both openings go into the keys.
void SecureStart::push_opening() {
  FrameHeader header;
  header.type = FrameType::kSecure;
  header.region = kSecureOpening;
  header.offset = static_cast<uint64_t>(security_->protection());
  const std::string name = security_->node_name().substr(0, kMaxName);
  const size_t before = out_.size();
  push(header, std::as_bytes(std::span(name)));
  (role_ == secure::Role::kDialer ? said_by_dialer_ : said_by_acceptor_)
      .assign(out_.begin() + static_cast<ptrdiff_t>(before), out_.end());
}

void SecureStart::push(const FrameHeader& header, std::span<const std::byte> content) {
  FrameHeader whole = header;
  whole.payload_bytes = static_cast<uint32_t>(content.size());
  const auto* bytes = reinterpret_cast<const std::byte*>(&whole);
  out_.insert(out_.end(), bytes, bytes + sizeof whole);
  out_.insert(out_.end(), content.begin(), content.end());
}

Status SecureStart::on_frame(const FrameHeader& header, std::span<const std::byte> content) {
  if (done()) return {Code::kLink, "malformed frame: a key exchange that is over goes on"};
  if (header.region == kSecureOpening) return on_opening(header, content);
  if (!peer_opened_) return {Code::kLink, "malformed frame: a key exchange without a beginning"};
  return exchange(content);
}

// A different protection is refused before any keys are exchanged: the keys would not fit, and the
// reason would be lost. The bytes that are kept are those of the frame as it arrived.
Status SecureStart::on_opening(const FrameHeader& header, std::span<const std::byte> content) {
  if (peer_opened_ || content.size() > kMaxName)
    return {Code::kLink, "malformed frame: a key exchange begins twice, or with a long name"};
  peer_opened_ = true;
  peer_name_ = plain_words(reinterpret_cast<const char*>(content.data()), content.size());
  if (header.offset != static_cast<uint64_t>(security_->protection())) {
    return {Code::kConfig, "security.transport is " + quoted(header.offset) + " on node " + peer_name_ +
                               " and " + quoted(static_cast<uint64_t>(security_->protection())) +
                               " on node " + security_->node_name() + ": set the same on all nodes"};
  }
  const auto* bytes = reinterpret_cast<const std::byte*>(&header);
  auto& said = role_ == secure::Role::kDialer ? said_by_acceptor_ : said_by_dialer_;
  said.assign(bytes, bytes + sizeof header);
  said.insert(said.end(), content.begin(), content.end());
  return role_ == secure::Role::kAcceptor ? begin() : Status::ok();
}

// A kConfig of the key exchange means that the cluster keys differ. The session is derived from both
// openings, the dialer's first, in the same order at both ends.
Status SecureStart::exchange(std::span<const std::byte> from_peer) {
  std::vector<std::byte> answer;
  Status status = keys_->advance(from_peer, answer);
  if (!status.is_ok()) {
    if (status.code() != Code::kConfig) return status;
    return {Code::kConfig, "node " + security_->node_name() + " and node " + peer_name_ +
                               " do not have the same cluster key (security.cluster_key_file)"};
  }
  if (answer.size() > kMaxSecureBytes)
    return {Code::kInternal, "a key exchange of " + std::to_string(answer.size()) + " bytes"};
  if (!answer.empty()) {
    FrameHeader header;
    header.type = FrameType::kSecure;
    header.region = kSecureExchange;
    push(header, answer);
  }
  if (!keys_->done()) return Status::ok();
  std::vector<std::byte> said = said_by_dialer_;
  said.insert(said.end(), said_by_acceptor_.begin(), said_by_acceptor_.end());
  auto session = keys_->session(said);
  if (!session.is_ok()) return session.status();
  session_ = session.take();
  return Status::ok();
}

Status SecureStart::unprotected() const {
  return {Code::kConfig, "node " + security_->node_name() + " has a cluster key and asks for " +
                             quoted(static_cast<uint64_t>(security_->protection())) +
                             ", and the node that dials begins without it" + kMend};
}

Status protected_by_peer_only() {
  return {Code::kConfig,
          std::string(
              "the node that dials has a cluster key and protects its connections, and this one does not") +
              kMend};
}

SecureStart::Pump SecureStart::pump(int fd) {
  while (pending()) {
    const ssize_t sent = ::send(fd, out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? Pump::kBlocked : Pump::kFailed;
    sent_ += static_cast<size_t>(sent);
  }
  out_.clear();
  sent_ = 0;
  return Pump::kDone;
}

}  // namespace hdt::transport::tcp
