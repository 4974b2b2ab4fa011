#include "daemon/handshake.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <sstream>

#include "base/codec.h"
#include "base/hmac.h"

namespace hdt::daemon {

namespace {

constexpr size_t kNonceBytes = 32;
constexpr size_t kMaxKeyBytes = 4096;
constexpr size_t kMinKeyBytes = 16;

enum class Message : uint8_t { kHello = 1, kProof = 2 };

std::span<const uint8_t> octets(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

}  // namespace

Handshake::Handshake(Role role, PeerHello own, std::string cluster_key)
    : role_(role), key_(std::move(cluster_key)) {
  std::array<uint8_t, kNonceBytes> nonce{};
  nonce_status_ = random_bytes(nonce);
  own_bytes_ = Writer()
                   .put(Message::kHello)
                   .put(kPeerMagic)
                   .put(kPeerVersion)
                   .put(own.purpose)
                   .put_bytes(own.node.bytes)
                   .put_string(own.name)
                   .put(own.engine)
                   .put(own.link)
                   .put(own.rail)
                   .put_string(own.group_class)
                   .put_bytes(std::as_bytes(std::span(nonce)))
                   .take();
}

std::vector<std::vector<std::byte>> Handshake::start() {
  if (role_ == Role::kDialer) return {own_bytes_};
  return {};
}

Result<std::vector<std::byte>> Handshake::proof(Role of) const {
  if (!nonce_status_.is_ok()) return nonce_status_;
  if (key_.empty()) return std::vector<std::byte>();
  const bool own_dials = role_ == Role::kDialer;
  Writer text;
  text.put(of)
      .put_bytes(own_dials ? own_bytes_ : peer_bytes_)
      .put_bytes(own_dials ? peer_bytes_ : own_bytes_);
  const auto mac = hmac_sha256(octets(std::as_bytes(std::span(key_))), octets(text.bytes()));
  if (!mac.is_ok()) return mac.status();
  const auto bytes = std::as_bytes(std::span(mac.value()));
  return std::vector<std::byte>(bytes.begin(), bytes.end());
}

Result<std::vector<std::vector<std::byte>>> Handshake::on_message(std::span<const std::byte> message) {
  std::vector<std::vector<std::byte>> answer;
  Reader reader(message);
  const auto kind = reader.get<Message>();
  const Role other = role_ == Role::kDialer ? Role::kAcceptor : Role::kDialer;
  if (state_ == State::kWaitHello && kind == Message::kHello) {
    if (reader.get<uint32_t>() != kPeerMagic)
      return Status(Code::kVersion, "the other side is no HDT daemon");
    if (const auto version = reader.get<uint32_t>(); version != kPeerVersion) {
      return Status(Code::kVersion, "the other daemon speaks peer protocol " + std::to_string(version) +
                                        ", this one " + std::to_string(kPeerVersion) +
                                        ": run the same release of hdtcommd on all nodes");
    }
    peer_.purpose = reader.get<Purpose>();
    reader.get_bytes(peer_.node.bytes);
    peer_.name = reader.get_string(kMaxName);
    peer_.engine = reader.get<uint32_t>();
    peer_.link = reader.get<uint32_t>();
    peer_.rail = reader.get<uint32_t>();
    peer_.group_class = reader.get_string(kMaxName);
    std::array<std::byte, kNonceBytes> nonce{};
    reader.get_bytes(nonce);
    if (!reader.complete()) return Status(Code::kInvalidArgument, "malformed hello of a daemon");
    peer_bytes_.assign(message.begin(), message.end());
    if (role_ == Role::kAcceptor) answer.push_back(own_bytes_);
    const auto ours = proof(role_);
    if (!ours.is_ok()) return ours.status();
    answer.push_back(Writer().put(Message::kProof).put_bytes(ours.value()).take());
    state_ = State::kWaitProof;
    return answer;
  }
  if (state_ == State::kWaitProof && kind == Message::kProof) {
    const auto theirs = message.subspan(1);
    const auto expected = proof(other);
    if (!expected.is_ok()) return expected.status();
    if (expected.value().size() != theirs.size() ||
        !equal_in_constant_time(octets(expected.value()), octets(theirs))) {
      return Status(Code::kConfig, key_.empty()
                                       ? "node " + peer_.name + " has a cluster key and this one has none"
                                       : "node " + peer_.name +
                                             " does not know the cluster key (security.cluster_key_file)");
    }
    state_ = State::kDone;
    return answer;
  }
  return Status(Code::kInvalidArgument, "unexpected message in a daemon's handshake");
}

Result<std::string> load_cluster_key(const std::string& file) {
  if (file.empty()) return std::string();
  std::ifstream in(file, std::ios::binary);
  if (!in) return Status(Code::kConfig, "security.cluster_key_file: cannot read " + file);
  std::string key(kMaxKeyBytes + 1, '\0');
  in.read(key.data(), static_cast<std::streamsize>(key.size()));
  key.resize(static_cast<size_t>(in.gcount()));
  while (!key.empty() && std::isspace(static_cast<unsigned char>(key.back())) != 0) key.pop_back();
  if (key.size() < kMinKeyBytes || key.size() > kMaxKeyBytes) {
    return Status(Code::kConfig, "security.cluster_key_file: " + file + " must hold " +
                                     std::to_string(kMinKeyBytes) + " to " + std::to_string(kMaxKeyBytes) +
                                     " bytes");
  }
  return key;
}

}  // namespace hdt::daemon
