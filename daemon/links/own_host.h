// own_host.h: a hdtcommd without a cluster key has peers on its own host only, unless security.insecure says
// otherwise. It listens on loopback addresses and dials none but those of its host. An embedded daemon serves
// a job of its own user, which cannot be asked for a key, and is not confined. Without a cluster key the
// kernel says who a peer on this host is: root and the daemon's own user are trusted, as they could do
// whatever a daemon can; other users' processes are no daemons to it.
#pragma once

#include <string>
#include <vector>

#include "base/config.h"
#include "daemon/links/backend_plan.h"
#include "transports/transport.h"

namespace hdt::daemon {

bool is_loopback(const std::string& host);
// Whether all addresses of a control address ("127.0.0.1:4000,[::1]:4000", an id in front or not) are
// loopback ones.
bool all_loopback(const std::string& addresses);

// As BackendPlan::make. `own_host_only`: NICs whose addresses other hosts reach are left out; where none is
// left the plan is 127.0.0.1 over tcp, for all classes.
Result<BackendPlan> make_plan(const Config& config, std::vector<std::string> folders, bool own_host_only);

// Where a daemon of this host is met that has peers on it only: an address of this host becomes the loopback
// one with the same port. Others stay as they are.
std::string within_host(const std::string& address);

// Why who is at the other end of a connection cannot be a peer of a daemon without a cluster key: a process
// of another user of this host. "": it can, or is on another host. To be asked while the other end waits for
// an answer, and so is there.
std::string foreign_peer(const transport::Connection& connection);

// What lets a daemon have peers on other hosts: the two commands.
std::string how_to_have_peers();

}  // namespace hdt::daemon
