// tls.h: the Security of daemons that share a key, by OpenSSL's TLS 1.3 and nothing older. Both ends have a
// pre-shared key, and a Diffie-Hellman exchange is added (psk_dhe_ke): an attacker who learns the shared key
// later cannot read what was recorded. There are no certificates, no tickets and no early data. TLS does the
// key exchange only. Its bytes are carried by the caller, and the keys of the Session are exported from it
// (RFC 8446, 7.5).
#pragma once

#include <memory>
#include <string>

#include "transports/secure/secure.h"

namespace hdt::transport::secure {

// The maximum that either end may send in an exchange, in bytes. An end that sends more is not HDT.
inline constexpr size_t kMaxExchangeBytes = 4096;

// `key`: the cluster key, not empty. `protection`: of the sessions, not kNone; the two ends must agree on it,
// or their keys do not fit. `node_name`: of this node. kInvalidArgument for an empty key or kNone, kSystem if
// OpenSSL fails.
Result<std::shared_ptr<const Security>> make_tls_security(const std::string& key, Protection protection,
                                                          const std::string& node_name);

}  // namespace hdt::transport::secure
