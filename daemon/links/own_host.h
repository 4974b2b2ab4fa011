// own_host.h: which peers a daemon without a cluster key accepts (SECURITY.md). Such an hdtcommd has
// peers on its own host only, unless security.insecure says otherwise: it listens on loopback addresses,
// and dials none but those of its host. An embedded daemon serves jobs of its own user, who cannot be
// asked for a key, and is not confined.
//
// On one host the kernel says whose process a peer is. Root and the daemon's own user are trusted, since
// they could do whatever a daemon can. Processes of other users are no daemons to it.
//
// All functions may be called from any thread.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "daemon/links/backend_plan.h"
#include "transports/transport.h"

namespace hdt::daemon {

// True for an address of 127.0.0.0/8 or ::1.
bool is_loopback(const std::string& host);
// Whether all addresses of a daemon's address are loopback addresses. Its form is
// "127.0.0.1:4000,[::1]:4000", with or without a node id in front. False if there is none.
bool all_loopback(const std::string& addresses);

// As BackendPlan::make(). `own_host_only`: NICs whose addresses other hosts can reach are left out. If
// none is left, the plan is 127.0.0.1 over tcp for all classes.
Result<BackendPlan> make_plan(const Config& config, std::vector<std::string> folders, bool own_host_only);

// For a daemon that has peers on this host only: an address of this host becomes 127.0.0.1 with the same
// port. Any other address stays as it is.
std::string within_host(const std::string& address);

// Why the process at the other end of a connection cannot be a peer of a daemon without a cluster key:
// it is of another user of this host. "": it can be, or it is on another host. To be called while the
// other end waits for an answer, because the kernel knows its user only while it is there.
std::string foreign_peer(const transport::Connection& connection);

// For messages: the commands with which a daemon gets peers on other hosts.
std::string how_to_have_peers();

}  // namespace hdt::daemon
