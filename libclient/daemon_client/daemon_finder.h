// daemon_finder.h: which daemon this process uses. In this order: the socket asked for (config or
// $HDT_SOCKET), and then nothing else; the system's daemon; an embedded one of this user, hosted by the first
// process that needs it, and by the others after it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "libclient/daemon_client/session.h"

namespace hdt::client {

// `socket`: "" if the caller asks for none. Sessions are shared within the process. A daemon that does not
// answer is waited for no longer than `timeout_ms`.
Result<std::shared_ptr<Session>> find_daemon(const std::string& socket, int64_t timeout_ms);

}  // namespace hdt::client
