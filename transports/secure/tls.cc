// tls.cc: the key exchange by OpenSSL (see tls.h). OpenSSL reads from and writes to two memory buffers (BIO);
// advance() moves bytes between them and the caller. The key is offered and found by OpenSSL's callbacks for
// external pre-shared keys.
#include "transports/secure/tls.h"

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <cstring>

#include "transports/secure/seal.h"

namespace hdt::transport::secure {

namespace {

// There is one cluster key, so its identity on the wire is a constant. The suite fixes the digest, SHA-256,
// that a pre-shared key is bound to. The labels keep the two exported values apart (RFC 5705).
constexpr char kIdentity[] = "hdt";
constexpr size_t kIdentityBytes = sizeof kIdentity - 1;
constexpr char kSuite[] = "TLS_AES_128_GCM_SHA256";
constexpr unsigned char kSuiteBytes[] = {0x13, 0x01};
constexpr char kKeysLabel[] = "EXPORTER-HDT-pieces";
constexpr char kBindingLabel[] = "EXPORTER-HDT-binding";
constexpr char kWrongKey[] = "the two do not have the same cluster key (security.cluster_key_file)";

struct FreeTls {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  void operator()(SSL* connection) const { SSL_free(connection); }
};
using Context = std::unique_ptr<SSL_CTX, FreeTls>;
using Connection = std::unique_ptr<SSL, FreeTls>;

// The first of OpenSSL's reasons for what has just failed. Empties the thread's error queue, so that an old
// reason is never taken for that of a later failure.
std::string last_error() {
  const unsigned long first = ERR_get_error();
  ERR_clear_error();
  const char* reason = first == 0 ? nullptr : ERR_reason_error_string(first);
  return reason == nullptr ? "no reason is given" : reason;
}

// A pre-shared key as OpenSSL takes it: a session with that key as its master key. The caller owns it; null
// if OpenSSL fails.
SSL_SESSION* session_of(SSL* connection, const Secret& key) {
  const SSL_CIPHER* suite = SSL_CIPHER_find(connection, kSuiteBytes);
  SSL_SESSION* session = SSL_SESSION_new();
  if (suite != nullptr && session != nullptr &&
      SSL_SESSION_set1_master_key(session, key.data(), key.size()) == 1 &&
      SSL_SESSION_set_cipher(session, suite) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  return nullptr;
}

// The key lies in the TlsSecurity that owns the context; an exchange holds that object.
const Secret& key_of(SSL* connection) {
  return *static_cast<const Secret*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(connection)));
}

// The dialer's callback. 1 without a session: the exchange goes on without a key, and fails at the other end.
int offer_key(SSL* connection, const EVP_MD* digest, const unsigned char** id, size_t* id_bytes,
              SSL_SESSION** session) {
  *session = nullptr;
  *id = reinterpret_cast<const unsigned char*>(kIdentity);
  *id_bytes = kIdentityBytes;
  // After a HelloRetryRequest: only a key for this digest may be offered.
  if (digest != nullptr && !EVP_MD_is_a(digest, "SHA256")) return 1;
  *session = session_of(connection, key_of(connection));
  return *session != nullptr ? 1 : 0;
}

// The acceptor's callback.
int find_key(SSL* connection, const unsigned char* identity, size_t bytes, SSL_SESSION** session) {
  *session = nullptr;  // and success: the exchange goes on without the key, and ends as there is nothing else
  if (bytes != kIdentityBytes || std::memcmp(identity, kIdentity, bytes) != 0) return 1;
  *session = session_of(connection, key_of(connection));
  return *session != nullptr ? 1 : 0;
}

// One end of an exchange. It frees the TLS connection on failure and when the keys have been taken, since
// that holds some tens of KiB.
class TlsExchange final : public KeyExchange {
 public:
  TlsExchange(std::shared_ptr<const Security> security, Connection connection, Role role)
      : security_(std::move(security)),
        connection_(std::move(connection)),
        role_(role),
        protection_(security_->protection()) {}

  Status advance(std::span<const std::byte> from_peer, std::vector<std::byte>& to_peer) override {
    if (connection_ == nullptr || done_) return {Code::kLink, "the peer sends more than a key exchange"};
    // 1. Put the peer's bytes into the input, within the limit.
    received_ += from_peer.size();
    if (received_ > kMaxExchangeBytes) return {Code::kLink, "a key exchange of more bytes than it can have"};
    BIO* in = SSL_get_rbio(connection_.get());
    if (!from_peer.empty() && BIO_write(in, from_peer.data(), static_cast<int>(from_peer.size())) !=
                                  static_cast<int>(from_peer.size()))
      return {Code::kSystem, "no memory for a key exchange"};
    // 2. Go on. SSL_get_error() looks into the error queue, so that must be empty before.
    ERR_clear_error();
    const int result = SSL_do_handshake(connection_.get());
    const int error = result == 1 ? SSL_ERROR_NONE : SSL_get_error(connection_.get(), result);
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ) return failure();
    // 3. Give out what TLS has written.
    BIO* out = SSL_get_wbio(connection_.get());
    char* bytes = nullptr;
    const long count = BIO_get_mem_data(out, &bytes);
    if (count > 0) {
      const auto* first = reinterpret_cast<const std::byte*>(bytes);
      to_peer.insert(to_peer.end(), first, first + count);
      (void)BIO_reset(out);
    }
    if (error == SSL_ERROR_WANT_READ) return Status::ok();
    // 4. Done. Without a certificate only the key can have led here. The check of a resumed session, which is
    //    how TLS treats a pre-shared key, makes sure of it.
    if (SSL_session_reused(connection_.get()) != 1 || SSL_version(connection_.get()) != TLS1_3_VERSION)
      return {Code::kConfig, kWrongKey};
    if (BIO_pending(in) > 0) return {Code::kLink, "the peer sends more than a key exchange"};
    done_ = true;
    return Status::ok();
  }

  bool done() const override { return done_; }

  Result<Session> session(std::span<const std::byte> context) override {
    if (!done_ || connection_ == nullptr)
      return Status(Code::kInvalidUsage, "the keys of an exchange that is not done");
    // The protection is a part of the context: ends that want different ones get keys that do not fit.
    std::vector<std::byte> seen = {static_cast<std::byte>(protection_)};
    seen.insert(seen.end(), context.begin(), context.end());
    struct {
      Secret from_dialer, from_acceptor;
    } secrets{};
    static_assert(sizeof secrets == 2 * kSecretBytes);
    Session session;
    const bool exported = get(kKeysLabel, seen, &secrets, sizeof secrets) &&
                          get(kBindingLabel, seen, session.binding.data(), session.binding.size());
    connection_.reset();  // some tens of KiB that nobody needs any more
    if (!exported) return Status(Code::kSystem, "OpenSSL cannot export keys: " + last_error());
    const bool dialer = role_ == Role::kDialer;
    auto sealer = make_sealer(protection_, dialer ? secrets.from_dialer : secrets.from_acceptor);
    auto opener = make_opener(protection_, dialer ? secrets.from_acceptor : secrets.from_dialer);
    OPENSSL_cleanse(&secrets, sizeof secrets);
    if (!sealer.is_ok()) return sealer.status();
    if (!opener.is_ok()) return opener.status();
    session.sealer = sealer.take();
    session.opener = opener.take();
    return session;
  }

 private:
  // A keying material exporter (RFC 8446, 7.5), with a context.
  bool get(const std::string& label, std::span<const std::byte> context, void* into, size_t bytes) {
    return SSL_export_keying_material(
               connection_.get(), static_cast<unsigned char*>(into), bytes, label.data(), label.size(),
               reinterpret_cast<const unsigned char*>(context.data()), context.size(), 1) == 1;
  }

  // Tells a wrong key, which an administrator can mend, from other failures.
  Status failure() {
    const int reason = ERR_GET_REASON(ERR_peek_error());
    const std::string words = last_error();
    connection_.reset();
    // The first two reasons come up at the end that checks the key. The others come up at an end whose peer
    // offers no key that it knows, or that gets TLS's alert.
    if (reason == SSL_R_BINDER_DOES_NOT_VERIFY || reason == SSL_R_DIGEST_CHECK_FAILED ||
        reason == SSL_R_SSLV3_ALERT_ILLEGAL_PARAMETER || reason == SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE ||
        reason == SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM || reason == SSL_R_NO_SHARED_CIPHER)
      return {Code::kConfig, kWrongKey};
    return {Code::kLink, "the key exchange failed: " + words};
  }

  const std::shared_ptr<const Security> security_;  // the connection refers to its key
  Connection connection_;                           // null: it failed, or its keys have been taken
  const Role role_;
  const Protection protection_;
  bool done_ = false;
  size_t received_ = 0;
};

// Immutable after open(). Each exchange holds a reference, so the key outlives the connections that refer to
// it.
class TlsSecurity final : public Security, public std::enable_shared_from_this<TlsSecurity> {
 public:
  TlsSecurity(Protection protection, std::string node_name)
      : protection_(protection), node_name_(std::move(node_name)) {}
  TlsSecurity(const TlsSecurity&) = delete;
  TlsSecurity& operator=(const TlsSecurity&) = delete;
  ~TlsSecurity() override { OPENSSL_cleanse(key_.data(), key_.size()); }

  // A key of the right length is derived from the cluster key, whatever that one's length is. Everything that
  // could lead to a connection without the key is switched off: older versions, other suites, tickets, the
  // session cache.
  Status open(const std::string& cluster_key) {
    HDT_RETURN_IF_ERROR(hkdf_sha256(
        {reinterpret_cast<const uint8_t*>(cluster_key.data()), cluster_key.size()}, "hdt tls 1", key_));
    context_.reset(SSL_CTX_new(TLS_method()));
    SSL_CTX* const context = context_.get();
    if (context == nullptr || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, kSuite) != 1 ||
        SSL_CTX_set1_groups_list(context, "X25519:P-256") != 1 || SSL_CTX_set_num_tickets(context, 0) != 1) {
      return {Code::kSystem, "OpenSSL cannot set up TLS 1.3: " + last_error()};
    }
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(context, SSL_OP_NO_TICKET);
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_app_data(context, &key_);
    SSL_CTX_set_psk_use_session_callback(context, &offer_key);
    SSL_CTX_set_psk_find_session_callback(context, &find_key);
    return Status::ok();
  }

  Protection protection() const override { return protection_; }
  const std::string& node_name() const override { return node_name_; }

  Result<std::unique_ptr<KeyExchange>> exchange(Role role) const override {
    Connection connection(SSL_new(context_.get()));
    BIO* in = BIO_new(BIO_s_mem());
    BIO* out = BIO_new(BIO_s_mem());
    if (connection == nullptr || in == nullptr || out == nullptr) {
      BIO_free(in);
      BIO_free(out);
      return Status(Code::kSystem, "OpenSSL cannot make a connection: " + last_error());
    }
    BIO_set_mem_eof_return(in, -1);          // an empty input means "not yet", and not the end
    SSL_set_bio(connection.get(), in, out);  // owns both from here on
    if (role == Role::kDialer) {
      // No certificate is trusted, so an acceptor that has a certificate in place of the key is refused.
      SSL_set_verify(connection.get(), SSL_VERIFY_PEER, nullptr);
      SSL_set_connect_state(connection.get());
    } else {
      SSL_set_accept_state(connection.get());
    }
    return std::unique_ptr<KeyExchange>(
        std::make_unique<TlsExchange>(shared_from_this(), std::move(connection), role));
  }

 private:
  const Protection protection_;
  const std::string node_name_;
  Secret key_{};
  Context context_;  // refers to key_
};

}  // namespace

Result<std::shared_ptr<const Security>> make_tls_security(const std::string& key, Protection protection,
                                                          const std::string& node_name) {
  if (key.empty() || protection == Protection::kNone)
    return Status(Code::kInvalidArgument, "a secure connection needs a key and a protection");
  auto security = std::make_shared<TlsSecurity>(protection, node_name);
  HDT_RETURN_IF_ERROR(security->open(key));
  return std::shared_ptr<const Security>(std::move(security));
}

}  // namespace hdt::transport::secure
