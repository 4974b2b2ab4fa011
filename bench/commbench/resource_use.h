// resource_use.h: what a rank uses besides time: processor time, and bytes sent over the machine's
// interfaces.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>

namespace hdt::bench {

// Readings since the start of the process or of the interface; differences have a meaning.
struct ResourceUse {
  // Processor seconds of this process with all its threads, and of the daemon.
  double cpu_s = 0;
  // By network interface of this machine, whichever process has sent them.
  std::map<std::string, uint64_t> sent_bytes;
};

// The use between `before` and `after`. Interfaces that carried nothing are left out.
ResourceUse difference(const ResourceUse& before, const ResourceUse& after);

// Reads the use of this process and, if wanted, of a daemon.
class ResourceMeter {
 public:
  // `daemon` is a process whose processor time counts too; 0: none.
  explicit ResourceMeter(pid_t daemon = 0) : daemon_(daemon) {}
  // The readings up to now. Takes some system calls, so it is kept out of the iterations.
  ResourceUse read() const;

 private:
  pid_t daemon_;
};

// Processor seconds of all threads of a process that are alive. 0 if the process is gone, or if it may
// not be seen.
double process_cpu_s(pid_t process);

// The process that listens at a SOCK_SEQPACKET socket; 0 if none does.
pid_t listener_of(const std::string& socket_path);

}  // namespace hdt::bench
