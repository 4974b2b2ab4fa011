// resource_use.cc: getrusage() for this process, /proc/PID/task/*/schedstat for the daemon (nanoseconds;
// /proc/PID/stat has ticks only), /proc/net/dev for the interfaces.
#include "bench/commbench/resource_use.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

namespace hdt::bench {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// All interfaces of this network namespace, loopback included.
std::map<std::string, uint64_t> sent_by_interface() {
  std::map<std::string, uint64_t> sent;
  std::ifstream file("/proc/net/dev");
  std::string line;
  while (std::getline(file, line)) {
    const size_t colon = line.find(':');
    // The first two lines are headings.
    if (colon == std::string::npos) continue;
    const size_t first = line.find_first_not_of(' ');
    std::istringstream columns(line.substr(colon + 1));
    uint64_t value = 0;
    // The bytes sent are the ninth column, after eight columns about receiving.
    for (int column = 0; column <= 8; ++column) columns >> value;
    if (columns) sent[line.substr(first, colon - first)] = value;
  }
  return sent;
}

}  // namespace

// A thread may end between the listing and the reading; it then counts nothing.
double process_cpu_s(pid_t process) {
  double total = 0;
  std::error_code error;
  const std::string tasks = "/proc/" + std::to_string(process) + "/task";
  for (std::filesystem::directory_iterator task(tasks, error), end; !error && task != end;
       task.increment(error)) {
    std::ifstream file(task->path() / "schedstat");
    double nanoseconds = 0;
    if (file >> nanoseconds) total += nanoseconds / 1e9;
  }
  return total;
}

pid_t listener_of(const std::string& socket_path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_path.empty() || socket_path.size() >= sizeof address.sun_path) return 0;
  std::memcpy(address.sun_path, socket_path.c_str(), socket_path.size() + 1);
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return 0;
  ucred peer{};
  socklen_t length = sizeof peer;
  // SO_PEERCRED names the process that called listen().
  const bool known = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
                     getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0;
  close(fd);
  return known ? peer.pid : 0;
}

ResourceUse ResourceMeter::read() const {
  ResourceUse use;
  use.sent_bytes = sent_by_interface();
  rusage own{};
  if (getrusage(RUSAGE_SELF, &own) == 0) use.cpu_s = seconds(own.ru_utime) + seconds(own.ru_stime);
  if (daemon_ > 0) use.cpu_s += process_cpu_s(daemon_);
  return use;
}

ResourceUse difference(const ResourceUse& before, const ResourceUse& after) {
  ResourceUse grown;
  grown.cpu_s = after.cpu_s - before.cpu_s;
  for (const auto& [name, bytes] : after.sent_bytes) {
    const auto known = before.sent_bytes.find(name);
    const uint64_t first = known == before.sent_bytes.end() ? 0 : known->second;
    if (bytes > first) grown.sent_bytes[name] = bytes - first;
  }
  return grown;
}

}  // namespace hdt::bench
