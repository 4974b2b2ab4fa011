// own_use.cc: counts by /proc/self. A count that cannot be read is 0.
#include "daemon/diagnosis/own_use.h"

#include <dirent.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <charconv>
#include <fstream>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/shared_memory.h"

namespace hdt::daemon {

namespace {

// How long a count is kept.
constexpr int64_t kGoodForMs = 100;

// Counts descriptors and, among them, sockets of the internet families. /proc/self/fd is the only way to
// enumerate one's own descriptors.
void count_descriptors(OwnUse& use) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
  if (folder == nullptr) return;
  while (const dirent* entry = ::readdir(folder.get())) {
    // Entries are the numbers of the descriptors.
    const std::string name = entry->d_name;
    int fd = -1;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), fd);
    // "." and "..", and the descriptor of this very folder.
    if (read.ec != std::errc{} || fd == ::dirfd(folder.get())) continue;
    ++use.descriptors;
    int family = 0;
    socklen_t size = sizeof family;
    if (::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0) continue;
    if (family != AF_INET && family != AF_INET6) continue;
    sockaddr_storage peer{};
    size = sizeof peer;
    // A socket that listens, or is bound only, has no peer.
    const bool has_peer = ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
    ++(has_peer ? use.connected : use.listening);
  }
}

// One whole count. RSS and the number of threads are in lines "KEY: NUMBER ..." of /proc/self/status.
OwnUse count() {
  OwnUse use;
  count_descriptors(use);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) use.descriptors_allowed = files.rlim_cur;
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key;) {
    uint64_t number = 0;
    if (key == "VmRSS:" && status >> number) use.memory_bytes = number * 1024;
    if (key == "Threads:" && status >> number) use.threads = number;
    std::getline(status, key);
  }
  const SharedMemory::Use shared = SharedMemory::in_use();
  use.shared_memories = shared.memories;
  use.shared_bytes = shared.bytes;
  return use;
}

}  // namespace

// Counting takes system calls for each descriptor, so a count serves for a moment. Called by one thread of
// the daemon only.
OwnUse own_use_now() {
  // Static: one count serves all askers of this process.
  static OwnUse counted;
  static Deadline again = Deadline::after_ms(0);
  if (!again.expired()) return counted;
  counted = count();
  again = Deadline::after_ms(kGoodForMs);
  return counted;
}

}  // namespace hdt::daemon
