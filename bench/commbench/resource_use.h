// resource_use.h: what a rank uses besides time: processor time and bytes sent over the machine's interfaces.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace hdt::bench {

struct ResourceUse {
  double cpu_s = 0;                            // of this process with all its threads, and of the daemon
  std::map<std::string, uint64_t> sent_bytes;  // by network interface of this machine, whoever sent them
};

// The growth from `before` to `after`; interfaces that carried nothing are left out.
ResourceUse difference(const ResourceUse& before, const ResourceUse& after);

class ResourceMeter {
 public:
  // `daemon`: a process whose processor time counts, too; 0: none.
  explicit ResourceMeter(pid_t daemon = 0) : daemon_(daemon) {}
  ResourceUse read() const;

 private:
  pid_t daemon_;
};

// Processor time of all threads of a process, alive ones only; 0 if it is gone or not ours to see.
double process_cpu_s(pid_t process);

// The process that listens at a SOCK_SEQPACKET socket path; 0 if none does.
pid_t listener_of(const std::string& socket_path);

}  // namespace hdt::bench
