// tls.h: the Security of daemons that share a key: TLS 1.3 by OpenSSL, nothing older, with a key that both
// know before (PSK) and a Diffie-Hellman exchange (psk_dhe_ke), so that whoever learns the shared key later
// cannot read what was recorded. No certificates, no tickets, no early data. TLS is only the key exchange:
// its bytes travel however the caller carries them, and the keys of the Session are exported from it (RFC
// 8446, 7.5).
#pragma once

#include <memory>
#include <string>

#include "transports/secure/secure.h"

namespace hdt::transport::secure {

// What either end may send in an exchange: one that needs more is not HDT's.
inline constexpr size_t kMaxExchangeBytes = 4096;

// `key`: the cluster's, not empty. `protection`: of the sessions, not kNone. `node_name`: of this node.
Result<std::shared_ptr<const Security>> make_tls_security(const std::string& key, Protection protection,
                                                          const std::string& node_name);

}  // namespace hdt::transport::secure
