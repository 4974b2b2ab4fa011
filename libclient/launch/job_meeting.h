// job_meeting.h: how the ranks of a job meet at an address that their launcher has given them: which
// addresses a name has, and by which key the ranks know each other.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/status.h"
#include "ipc/messages.h"
#include "libclient/launch/environment.h"

namespace hdt::client {

// SHA-256 of `text`: a key that everyone who knows the text computes, and nobody else. kSystem: the
// cryptography library refuses.
Result<ipc::GroupKey> key_of(const std::string& text);

// How long this process has existed, in ms; 0 if the system does not say. The daemon compares it with
// the age of a failed attempt to make a group (ipc/messages.h, JoinRequest).
int64_t process_age_ms();

// The addresses of a host, with the port.
struct Addresses {
  // "[::1]:4000,127.0.0.1:4000", at most ipc::kMaxPlaceBytes; later addresses are left out.
  std::string list;
  // One of them is an address of the loopback interface.
  bool loopback = false;
};

// All addresses of the host, of both families, in the resolver's order; the first eight. It may block in
// the resolver, so the caller's thread calls it, never the daemon's. kConfig names the variable: the
// name does not resolve, or means every address of a host.
Result<Addresses> addresses_of(const Rendezvous& where);

// Whether `host` is the name of one host: it is no address, and no name of the loopback interface
// ("localhost", "ip6-localhost"), which every host has. A host may have its own name at a loopback
// address: Debian's installer writes 127.0.1.1 into /etc/hosts.
bool names_a_host(const std::string& host);

// The keys of a job's groups. The first group's key is made from the text that all ranks were given, not
// from what it resolves to, which differs from host to host. Later groups are made with the secret that
// the first group's coordinator has drawn, so that no other process can take part in them. One in a
// process; thread-safe.
class JobMeeting {
 public:
  // The only one.
  static JobMeeting& instance();
  // The name of a place in the calls below: the text that all ranks were given.
  static std::string name_of(const Rendezvous& where);
  // The key of the job's group `number` (counted from 0 on all ranks alike) at this place. `kind` is set
  // to which processes can know it.
  Result<ipc::GroupKey> key(const std::string& place, uint64_t number, ipc::Meeting& kind);
  // Keeps the secret of a group that was made at this place, for which key() was called. Only the first one
  // counts. It needs no memory: ranks that have the secret and ranks that do not would never meet again.
  void remember(const std::string& place, const ipc::GroupKey& secret) noexcept;

 private:
  std::mutex mutex_;
  // By place. Nothing: no group has been made there yet.
  std::map<std::string, std::optional<ipc::GroupKey>> secrets_;
};

}  // namespace hdt::client
