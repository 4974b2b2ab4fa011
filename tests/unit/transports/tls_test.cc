// The key exchange: who has the key gets keys, and nobody else; whatever is changed on the way ends it.
#include <gmock/gmock.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <algorithm>
#include <array>
#include <functional>
#include <random>

#include "tests/unit/transports/random_bytes.h"
#include "transports/secure/tls.h"

namespace hdt::transport::secure {

namespace {

using Bytes = std::vector<std::byte>;
using testing::HasSubstr;

constexpr char kGoodKey[] = "a key of the cluster, long enough";

std::shared_ptr<const Security> with_key(const std::string& key,
                                         Protection protection = Protection::kEncrypt) {
  auto made = make_tls_security(key, protection, "somewhere");
  EXPECT_TRUE(made.is_ok()) << made.status().to_string();
  return made.take();
}

// Two ends, and what is on the way between them.
struct Exchange {
  std::unique_ptr<KeyExchange> dialer, acceptor;
  Status dialer_end, acceptor_end;
  std::vector<Bytes> flights;  // as they were sent

  Exchange(const Security& dials, const Security& accepts)
      : dialer(dials.exchange(Role::kDialer).take()), acceptor(accepts.exchange(Role::kAcceptor).take()) {}

  bool done() const { return dialer->done() && acceptor->done(); }
  bool failed() const { return !dialer_end.is_ok() || !acceptor_end.is_ok(); }

  // `change` may alter flight number n.
  void run(const std::function<void(size_t, Bytes&)>& change = [](size_t, Bytes&) {}) {
    Bytes out;
    dialer_end = dialer->advance({}, out);
    for (bool to_acceptor = true; !failed() && !out.empty(); to_acceptor = !to_acceptor) {
      flights.push_back(out);
      change(flights.size() - 1, out);
      Bytes answer;
      Status& end = to_acceptor ? acceptor_end : dialer_end;
      end = (to_acceptor ? acceptor : dialer)->advance(out, answer);
      out = answer;
    }
  }
};

Bytes text(const std::string& words) {
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

// Whether what one seals is what the other one opens.
bool passes(Session& from, Session& to) {
  const Bytes plain = text("what is said afterwards");
  Bytes wire(plain.size()), opened(plain.size());
  Tag tag{};
  return from.sealer->begin() && from.sealer->update(plain.data(), plain.size(), wire.data()) &&
         from.sealer->finish(tag) && to.opener->begin() &&
         to.opener->update(wire.data(), wire.size(), opened.data()) && to.opener->finish(tag) &&
         opened == plain;
}

// A session whose two ends trust it, or nothing.
bool works(Exchange& exchange) {
  if (!exchange.done()) return false;
  Session dialer = exchange.dialer->session(text("said before")).take();
  Session acceptor = exchange.acceptor->session(text("said before")).take();
  return passes(dialer, acceptor) && passes(acceptor, dialer);
}

}  // namespace

class TlsExchangeOf : public testing::TestWithParam<Protection> {};
INSTANTIATE_TEST_SUITE_P(Both, TlsExchangeOf, testing::Values(Protection::kMac, Protection::kEncrypt),
                         [](const auto& param) { return std::string(name_of(param.param)); });

TEST_P(TlsExchangeOf, TheSameKeyGivesASession) {
  const auto security = with_key(kGoodKey, GetParam());
  Exchange exchange(*security, *security);
  exchange.run();
  ASSERT_TRUE(exchange.done()) << exchange.dialer_end.to_string() << exchange.acceptor_end.to_string();
  EXPECT_EQ(exchange.flights.size(), 3U) << "a ticket, or a round trip too many";
  for (const Bytes& flight : exchange.flights) EXPECT_LT(flight.size(), 600U);
  Session dialer = exchange.dialer->session(text("said before")).take();
  Session acceptor = exchange.acceptor->session(text("said before")).take();
  EXPECT_EQ(dialer.binding, acceptor.binding);
  EXPECT_EQ(dialer.sealer->encrypts(), GetParam() == Protection::kEncrypt);
  EXPECT_TRUE(passes(dialer, acceptor));
  EXPECT_TRUE(passes(acceptor, dialer));
  EXPECT_FALSE(passes(dialer, dialer)) << "its own words come back to it";
  EXPECT_FALSE(exchange.dialer->session({}).is_ok()) << "keys are given out once";
}

TEST_P(TlsExchangeOf, SessionsHaveNothingInCommon) {
  const auto security = with_key(kGoodKey, GetParam());
  Exchange one(*security, *security), two(*security, *security);
  one.run();
  two.run();
  ASSERT_TRUE(one.done() && two.done());
  Session first = one.dialer->session({}).take();
  Session second = two.acceptor->session({}).take();
  EXPECT_NE(first.binding, second.binding);
  EXPECT_FALSE(passes(first, second));
}

TEST(TlsExchange, AnotherKeyIsRefusedInWords) {
  for (const char* other : {"another key, as long as that one!", "a key of the cluster, long enougH"}) {
    Exchange exchange(*with_key(kGoodKey), *with_key(other));
    exchange.run();
    EXPECT_FALSE(exchange.done());
    EXPECT_EQ(exchange.acceptor_end.code(), Code::kConfig);
    EXPECT_THAT(exchange.acceptor_end.message(), HasSubstr("security.cluster_key_file"));
    EXPECT_FALSE(exchange.acceptor->session({}).is_ok());
    Bytes more;
    EXPECT_FALSE(exchange.acceptor->advance(exchange.flights[0], more).is_ok()) << "no second try";
  }
}

TEST(TlsExchange, EndsThatHeardDifferentThingsBeforeGetKeysThatDoNotFit) {
  const auto security = with_key(kGoodKey);
  Exchange exchange(*security, *security);
  exchange.run();
  Session dialer = exchange.dialer->session(text("encrypt")).take();
  Session acceptor = exchange.acceptor->session(text("none")).take();
  EXPECT_FALSE(passes(dialer, acceptor));
  EXPECT_NE(dialer.binding, acceptor.binding);
  Exchange mixed(*with_key(kGoodKey, Protection::kMac), *with_key(kGoodKey, Protection::kEncrypt));
  mixed.run();
  EXPECT_FALSE(works(mixed));
}

// The version that TLS records begin with stands for nothing since TLS 1.3, and is not protected; any other
// bit that is changed must end it, at the latest at the first piece.
TEST(TlsExchange, AChangedByteAnywhereEndsIt) {
  const auto security = with_key(kGoodKey);
  Exchange good(*security, *security);
  good.run();
  ASSERT_TRUE(works(good));
  size_t passed = 0;
  for (size_t flight = 0; flight < 3; ++flight) {
    for (size_t at = 0; at < good.flights[flight].size(); ++at) {
      Exchange exchange(*security, *security);
      exchange.run([&](size_t number, Bytes& bytes) {
        if (number == flight) bytes[at] ^= std::byte{1};
      });
      if (!works(exchange)) continue;
      ++passed;
      EXPECT_TRUE(at == 2 || flight == 1) << "flight " << flight << " byte " << at;
    }
  }
  EXPECT_LE(passed, 8U) << "more than the records' versions";
}

TEST(TlsExchange, ATruncatedFlightIsNoExchange) {
  const auto security = with_key(kGoodKey);
  for (size_t flight = 0; flight < 3; ++flight) {
    Exchange exchange(*security, *security);
    exchange.run([&](size_t number, Bytes& bytes) {
      if (number == flight) bytes.pop_back();
    });
    EXPECT_FALSE(exchange.done()) << "flight " << flight;
  }
}

TEST(TlsExchange, WhatWasRecordedIsOfNoUse) {
  const auto security = with_key(kGoodKey);
  Exchange recorded(*security, *security);
  recorded.run();
  ASSERT_TRUE(recorded.done());
  const auto acceptor = security->exchange(Role::kAcceptor).take();
  Bytes out;
  ASSERT_TRUE(acceptor->advance(recorded.flights[0], out).is_ok());
  EXPECT_FALSE(acceptor->advance(recorded.flights[2], out).is_ok());
  EXPECT_FALSE(acceptor->done());
}

TEST(TlsExchange, MoreThanAnExchangeIsRefused) {
  const auto security = with_key(kGoodKey);
  const auto acceptor = security->exchange(Role::kAcceptor).take();
  Bytes out;
  EXPECT_FALSE(acceptor->advance(Bytes(kMaxExchangeBytes + 1), out).is_ok());
  Exchange exchange(*security, *security);
  exchange.run([](size_t number, Bytes& bytes) {
    if (number == 2) bytes.push_back(std::byte{0});
  });
  EXPECT_FALSE(exchange.done()) << "bytes behind the last one";
}

TEST(TlsExchange, NoiseEndsIt) {
  const auto security = with_key(kGoodKey);
  std::mt19937_64 random(seed_of_run());
  for (int i = 0; i < 300; ++i) {
    const auto end = security->exchange(i % 2 == 0 ? Role::kAcceptor : Role::kDialer).take();
    Bytes out;
    if (i % 2 == 1) {
      ASSERT_TRUE(end->advance({}, out).is_ok());
    }
    Bytes noise(1 + random() % 600);
    for (std::byte& byte : noise) byte = static_cast<std::byte>(random());
    if (i % 3 == 0 && noise.size() > 5) {  // as a record of a handshake that has all its bytes
      const std::array<uint8_t, 3> head = {22, 3, 1};
      std::transform(head.begin(), head.end(), noise.begin(), [](uint8_t b) { return std::byte{b}; });
      noise[3] = static_cast<std::byte>((noise.size() - 5) >> 8);
      noise[4] = static_cast<std::byte>(noise.size() - 5);
    }
    (void)end->advance(noise, out);
    EXPECT_FALSE(end->done());
  }
}

namespace {

struct FreeOpenSsl {
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509* p) const { X509_free(p); }
};
template <typename T>
using Owned = std::unique_ptr<T, FreeOpenSsl>;

// An end that speaks TLS in its own way.
struct Stranger {
  Owned<SSL_CTX> context{SSL_CTX_new(TLS_method())};
  Owned<SSL> connection;

  void open(bool dials) {
    connection.reset(SSL_new(context.get()));
    SSL_set_bio(connection.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    dials ? SSL_set_connect_state(connection.get()) : SSL_set_accept_state(connection.get());
  }
  Bytes step(const Bytes& in) {
    if (!in.empty()) BIO_write(SSL_get_rbio(connection.get()), in.data(), static_cast<int>(in.size()));
    SSL_do_handshake(connection.get());
    Bytes out(BIO_pending(SSL_get_wbio(connection.get())));
    if (!out.empty()) BIO_read(SSL_get_wbio(connection.get()), out.data(), static_cast<int>(out.size()));
    return out;
  }
};

}  // namespace

// Somebody without the key who has a certificate instead: TLS would do, HDT does not.
TEST(TlsExchange, ACertificateIsNoKey) {
  Stranger stranger;
  Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  Owned<X509> certificate(X509_new());
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  ASSERT_GT(X509_sign(certificate.get(), key.get(), EVP_sha256()), 0);
  ASSERT_EQ(SSL_CTX_use_certificate(stranger.context.get(), certificate.get()), 1);
  ASSERT_EQ(SSL_CTX_use_PrivateKey(stranger.context.get(), key.get()), 1);
  stranger.open(false);
  const auto dialer = with_key(kGoodKey)->exchange(Role::kDialer).take();
  Bytes hello, answer;
  ASSERT_TRUE(dialer->advance({}, hello).is_ok());
  const Bytes flight = stranger.step(hello);
  ASSERT_FALSE(flight.empty()) << "the stranger gave up";
  EXPECT_FALSE(dialer->advance(flight, answer).is_ok());
  EXPECT_FALSE(dialer->done());
}

TEST(TlsExchange, OlderVersionsAndStrangersWithoutAKeyAreRefused) {
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    Stranger stranger;
    SSL_CTX_set_max_proto_version(stranger.context.get(), version);
    stranger.open(true);
    const auto acceptor = with_key(kGoodKey)->exchange(Role::kAcceptor).take();
    Bytes answer;
    EXPECT_FALSE(acceptor->advance(stranger.step({}), answer).is_ok()) << version;
    EXPECT_TRUE(answer.empty()) << "a stranger is told nothing";
  }
}

}  // namespace hdt::transport::secure
