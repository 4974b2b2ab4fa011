// job_meeting.h: how the ranks of a job meet at an address that their launcher gave them: which addresses a
// name has, and by which key the ranks know each other.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "base/status.h"
#include "ipc/messages.h"
#include "libclient/launch/environment.h"

namespace hdt::client {

// A key that everyone who knows `text` computes.
Result<session::GroupKey> key_of(const std::string& text);

// For how long this process has existed; 0 where the system does not say.
int64_t process_age_ms();

struct Addresses {
  std::string list;       // "[::1]:4000,127.0.0.1:4000"
  bool loopback = false;  // one of them is
};

// All addresses of the host, of both families, in the resolver's order. It may block in the resolver: it is
// called by the caller's thread, never by the daemon's. HDT_ERR_CONFIG names the variable.
Result<Addresses> addresses_of(const Rendezvous& where);

// Whether `host` is the name of one host: no address, and no name of the loopback interface ("localhost",
// "ip6-localhost"), which every host has. A host may have its own name at a loopback address: Debian's
// installer writes 127.0.1.1 into /etc/hosts.
bool names_a_host(const std::string& host);

// The keys of a job's groups. The first group's key is made from the text that all ranks were given, not from
// what it resolves to, which differs from host to host. Later groups are made with the secret that the first
// one's coordinator drew, so that no other process can take part in them. Thread-safe.
class JobMeeting {
 public:
  static JobMeeting& instance();
  // Of the job's group `number`. `kind` says who else can know the key.
  Result<session::GroupKey> key(const Rendezvous& where, uint64_t number, session::Meeting& kind);
  // The secret of a group that was made at this address.
  void remember(const Rendezvous& where, const session::GroupKey& secret);

 private:
  std::mutex mutex_;
  std::map<std::string, std::string> secrets_;  // by place
};

}  // namespace hdt::client
