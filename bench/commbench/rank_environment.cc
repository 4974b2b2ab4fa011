// rank_environment.cc: the environment of a rank. Each node has a name that no other run has, so it
// joins neither the machine's daemon nor another run's. Node i is at 127.0.1.<i + 1>, with a daemon of
// its own.
#include "bench/commbench/rank_environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <system_error>
#include <vector>

namespace hdt::bench {

namespace {

// The address of no node. A daemon that listens at a node's address may be given any port that is free
// there, and so could take the port that was found here before the ranks meet.
constexpr const char* kRendezvousAddress = "127.0.2.1";

}  // namespace

std::string node_address(int node) { return fmt::format("127.0.1.{}", node + 1); }

int rank_count(const Options& options) { return std::max(options.local, 1) * std::max(options.nodes, 1); }

// Binds a socket to port 0 and reads which port the system has chosen. The port is free again when the
// socket is closed.
Result<int> find_free_port() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Status::from_errno("socket", errno);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  inet_pton(AF_INET, kRendezvousAddress, &address.sin_addr);
  socklen_t length = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  Status status;
  if (bind(fd, generic, length) != 0 || getsockname(fd, generic, &length) != 0) {
    status = Status::from_errno(std::string("finding a free port on ") + kRendezvousAddress, errno);
  }
  close(fd);
  if (!status.is_ok()) return status;
  return static_cast<int>(ntohs(address.sin_port));
}

std::string Job::to_text() const { return fmt::format("{} {} {}", port, launcher, sockets); }

// The folder of the sockets may be empty, and may contain blanks.
Result<Job> Job::parse(const std::string& text) {
  Job job;
  std::istringstream in(text);
  if (!(in >> job.port >> job.launcher) || in.get() != ' ') {
    return Status(Code::kInvalidArgument,
                  "'" + text + "' given; expected nothing: it is set by hdt-commbench");
  }
  job.sockets = text.substr(static_cast<size_t>(in.tellg()));
  return job;
}

std::string Job::node_name(int node) const { return fmt::format("bench-{}-{}", launcher, node); }
std::string Job::socket(int node) const { return fmt::format("{}/{}.sock", sockets, node); }

// Emulated nodes share no core if there is one for each, as real nodes do not. Otherwise a result would
// depend on which threads of two nodes the scheduler happens to put on one core. All engines get the
// same cores; threads that are started later inherit them.
void keep_to_cores_of_node(const Options& options, int node) {
  const int nodes = std::max(options.nodes, 1);
  cpu_set_t all;
  if (nodes == 1 || sched_getaffinity(0, sizeof all, &all) != 0) return;
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &all)) cores.push_back(core);
  }
  // Cores that are left over stay unused, so that all nodes are equal.
  const size_t each = cores.size() / static_cast<size_t>(nodes);
  // Fewer cores than nodes: they share.
  if (each == 0) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  for (size_t i = 0; i < each; ++i) CPU_SET(cores[static_cast<size_t>(node) * each + i], &own);
  sched_setaffinity(0, sizeof own, &own);
}

void set_rank_environment(const Options& options, const Job& job, int rank) {
  const int per_node = std::max(options.local, 1);
  const int node = rank / per_node;
  const auto set = [](const char* name, const std::string& value) { setenv(name, value.c_str(), 1); };
  keep_to_cores_of_node(options, node);
  set("HDT_RANK", std::to_string(rank));
  set("HDT_SIZE", std::to_string(rank_count(options)));
  set("HDT_RENDEZVOUS", fmt::format("{}:{}", kRendezvousAddress, job.port));
  set("HDT_NODE_NAME", job.node_name(node));
  set("HDT_NICS_ADDRESSES", node_address(node));
  if (!options.backend.empty()) set("HDT_CLASS_DEFAULT_BACKENDS", options.backend);
  // A socket from outside would make the ranks join the machine's daemon.
  if (job.sockets.empty()) {
    unsetenv("HDT_SOCKET");
  } else {
    set("HDT_SOCKET", job.socket(node));
  }
}

std::string program_folder() {
  std::error_code error;
  return std::filesystem::read_symlink("/proc/self/exe", error).parent_path().string();
}

}  // namespace hdt::bench
