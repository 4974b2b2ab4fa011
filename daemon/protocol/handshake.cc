// handshake.cc: the wire form of the handshake and its proofs. See handshake.h for the order of messages.
// Everything in a Hello is foreign until the peer's proof, which covers the bytes of the whole Hello, has
// been checked.
#include "daemon/protocol/handshake.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/codec.h"
#include "base/foreign_text.h"
#include "base/hmac.h"
#include "base/signing.h"

namespace hdt::daemon {

namespace {

// As long as the hash, so that two connections never have the same transcript.
constexpr size_t kNonceBytes = 32;
// Separates these proofs from other uses of the keys.
constexpr char kProofText[] = "HDT handshake";

enum class Message : uint8_t { kHello = 1, kProof = 2 };
using Nonce = std::array<std::byte, kNonceBytes>;

// The beginning of a Hello, in every version: what follows may be different in another one.
struct Opening {
  uint32_t magic = kPeerMagic;
  uint32_t version = kPeerVersion;
};

void fields(auto& c, Is<Opening> auto& m) { c.number(m.magic, m.version); }

// The same bytes as the cryptography's type.
std::span<const uint8_t> octets(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

// A node's name appears in logs, tables and known_nodes, where a blank would end it: visible ASCII only.
bool is_node_name(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7f; });
}

}  // namespace

// The part of a Hello between its Opening and its Nonce.
void fields(auto& c, Is<PeerHello> auto& m) {
  c.number(m.purpose);
  c.bytes(m.node.bytes);
  c.string(m.name, kMaxName);
  c.number(m.engine, m.link, m.rail);
  c.string(m.group_class, kMaxName);
  c.bytes(m.key);
  c.bytes(m.start);
  c.flag(m.lasting);
}

Handshake::Handshake(Role role, PeerHello own, std::shared_ptr<Trust> trust)
    : role_(role), trust_(std::move(trust)) {
  Nonce nonce{};
  // A constructor cannot fail: proof() and check() do, if there is no nonce.
  nonce_status_ = random_bytes({reinterpret_cast<uint8_t*>(nonce.data()), nonce.size()});
  own.node = trust_->node();
  own.key = trust_->key().public_key();
  own.start = trust_->start();
  own.lasting = trust_->lasting();
  // These bytes are sent as they are and are part of the transcript, so the Hello must not change
  // afterwards.
  Writer writer;
  writer.number(Message::kHello);
  const Opening opening;
  fields(writer, opening);
  fields(writer, own);
  own_bytes_ = writer.bytes(nonce).take();
}

// The acceptor says nothing until it has read a Hello, so that whoever connects and stays silent learns
// nothing about it.
std::vector<std::vector<std::byte>> Handshake::start() {
  if (role_ == Role::kDialer) return {own_bytes_};
  return {};
}

// The bytes that a proof is about: the role of whoever proves, the protected connection if there is one, and
// both Hellos byte by byte. Both ends make the same bytes, whichever of the two they are.
std::vector<uint8_t> Handshake::transcript(Role of) const {
  // The lengths stand before the Hellos so that no other pair of Hellos gives the same bytes.
  const bool own_dials = role_ == Role::kDialer;
  const auto& dialer = own_dials ? own_bytes_ : peer_bytes_;
  const auto& acceptor = own_dials ? peer_bytes_ : own_bytes_;
  const auto text = Writer()
                        .bytes(kProofText)
                        .number(of)
                        .bytes(binding_)
                        .number(static_cast<uint32_t>(dialer.size()))
                        .bytes(dialer)
                        .number(static_cast<uint32_t>(acceptor.size()))
                        .bytes(acceptor)
                        .take();
  const auto bytes = octets(text);
  return {bytes.begin(), bytes.end()};
}

// Two parts: a MAC by the cluster key, which shows that this daemon belongs to the cluster, and a signature
// by the node key, which shows which node it is. The role is part of both, so a proof cannot be sent back
// to its maker.
Result<std::vector<std::byte>> Handshake::proof() const {
  if (!nonce_status_.is_ok()) return nonce_status_;
  // Without a cluster key: an empty proof.
  if (trust_->cluster_key().empty()) return std::vector<std::byte>();
  const auto text = transcript(role_);
  // Over the transcript with this end's own role.
  const auto mac = hmac_sha256(octets(std::as_bytes(std::span(trust_->cluster_key()))), text);
  if (!mac.is_ok()) return mac.status();
  const auto signature = trust_->key().sign(text);
  if (!signature.is_ok()) return signature.status();
  return Writer().bytes(mac.value()).bytes(signature.value()).take();
}

// An error names the setting to look at. Nothing in its text depends on secret bytes.
Status Handshake::check(std::span<const std::byte> proof) const {
  if (!nonce_status_.is_ok()) return nonce_status_;
  // The checks go from the shared to the individual: whether a key is configured on both ends or on
  // neither, the cluster key, the node key, and at last whether the name may have that node key. Trust
  // remembers new nodes, so it comes last, when everything is proved.
  const bool has_key = !trust_->cluster_key().empty();
  if (has_key == proof.empty()) {
    return {
        Code::kConfig,
        has_key
            ? "node " + peer_.name + " has no cluster key and this one has one (security.cluster_key_file)"
            : "node " + peer_.name + " has a cluster key and this one has none (security.cluster_key_file)"};
  }
  if (!has_key) return Status::ok();
  // The peer's proof is about the transcript with the peer's role.
  const auto text = transcript(role_ == Role::kDialer ? Role::kAcceptor : Role::kDialer);
  const auto mac = hmac_sha256(octets(std::as_bytes(std::span(trust_->cluster_key()))), text);
  if (!mac.is_ok()) return mac.status();
  // The comparison takes the same time wherever the bytes differ, so its duration helps nobody to guess a
  // proof.
  Signature signature{};
  if (proof.size() != mac.value().size() + signature.size() ||
      !equal_in_constant_time(mac.value(), octets(proof.first(mac.value().size())))) {
    return {Code::kConfig,
            "node " + peer_.name + " does not know the cluster key (security.cluster_key_file)"};
  }
  std::memcpy(signature.data(), proof.data() + mac.value().size(), signature.size());
  if (!is_signed_by(peer_.key, text, signature))
    return {Code::kConfig,
            "node " + peer_.name + " does not have the private half of the node key that it sent"};
  return trust_->check(peer_.name, peer_.key, peer_.lasting);
}

// Any error ends the connection. There is no way back: an object that has failed is not used again.
Result<std::vector<std::vector<std::byte>>> Handshake::on_message(std::span<const std::byte> message) {
  std::vector<std::vector<std::byte>> answer;
  // State kWaitHello: 1. magic and version first, as the rest of the format depends on them; 2. the fields;
  // 3. the node id must be the hash of the key and the nonce, so the proof of the key proves the id as well;
  // 4. answer. The dialer has sent its Hello before, the acceptor sends it now; both send their proof.
  Reader reader(message);
  const auto kind = reader.get<Message>();
  if (state_ == State::kWaitHello && kind == Message::kHello) {
    Opening theirs;
    fields(reader, theirs);
    if (theirs.magic != kPeerMagic) return Status(Code::kVersion, "the other side is no HDT daemon");
    if (theirs.version != kPeerVersion) {
      return Status(Code::kVersion, "the other daemon speaks peer protocol " +
                                        std::to_string(theirs.version) + ", this one " +
                                        std::to_string(kPeerVersion) +
                                        ": run the same release of hdtcommd on all nodes");
    }
    fields(reader, peer_);
    // Only its place in the bytes counts: it makes the transcript a new one for each connection.
    Nonce nonce{};
    reader.bytes(nonce);
    // Foreign enums are compared with each value: a cast alone would accept any number.
    const bool known_purpose = peer_.purpose == Purpose::kControl || peer_.purpose == Purpose::kRail ||
                               peer_.purpose == Purpose::kNoRail;
    if (!reader.complete() || !known_purpose)
      return Status(Code::kInvalidArgument, "malformed hello of a daemon");
    if (!is_node_name(peer_.name) || !is_plain_text(peer_.group_class))
      return Status(Code::kInvalidArgument, "a name in the hello of a daemon is not plain printable text");
    const auto id = node_id_of(peer_.key, peer_.start);
    if (!id.is_ok()) return id.status();
    if (peer_.node != id.value())
      return Status(Code::kInvalidArgument, "node " + peer_.name + " sent a node id that is not its own");
    // Kept byte by byte for the transcript: both ends must sign what was sent, and not what they have
    // understood of it.
    peer_bytes_.assign(message.begin(), message.end());
    if (role_ == Role::kAcceptor) answer.push_back(own_bytes_);
    const auto ours = proof();
    if (!ours.is_ok()) return ours.status();
    answer.push_back(Writer().number(Message::kProof).bytes(ours.value()).take());
    state_ = State::kWaitProof;
    return answer;
  }
  // State kWaitProof: one message, the proof, ends the handshake.
  if (state_ == State::kWaitProof && kind == Message::kProof) {
    HDT_RETURN_IF_ERROR(check(message.subspan(1)));
    state_ = State::kDone;
    return answer;
  }
  return Status(Code::kInvalidArgument, "unexpected message in a daemon's handshake");
}

}  // namespace hdt::daemon
