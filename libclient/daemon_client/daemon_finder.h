// daemon_finder.h: which daemon this process uses. In this order:
// 1. The socket that is asked for, by the config or by $HDT_SOCKET. If one is asked for, no other daemon
//    is looked for.
// 2. The system's daemon, at the default socket. Not if $HDT_NODE_NAME is set: then the process plays a
//    node of its own.
// 3. An embedded daemon of this user, hosted by the first process that needs it, and found by the
//    others.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "libclient/daemon_client/session.h"

namespace hdt::client {

// The session with that daemon, shared within the process; a new one is opened if there is none or if it
// is failed. `socket`: "" if the caller asks for none. A daemon that does not answer is waited for no
// longer than `timeout_ms`. Any thread; one thread looks at a time, and others wait for it.
//
// kNoDaemon: the socket that is asked for does not answer, or no embedded daemon could be reached or
// hosted. kVersion, kSystem, kConfig and refusals of the daemon are returned as they are.
Result<std::shared_ptr<Session>> find_daemon(const std::string& socket, int64_t timeout_ms);

// For a tool that asks a daemon and hosts none: the socket of the system's daemon, if there is one, else that
// of this user's embedded daemon, in the order above. Nothing is connected to. kNoDaemon: there is none, or
// several embedded ones; the message names them. kConfig, kSystem: as runtime_place().
Result<std::string> find_socket();

}  // namespace hdt::client
