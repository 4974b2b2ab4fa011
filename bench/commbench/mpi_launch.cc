// mpi_launch.cc: the command line of mpirun.
//
// With one rank a node, Open MPI may use nothing but TCP. With more, mpirun starts a launcher
// daemon of its own for each node, through a stand-in for ssh that stays on this machine. So Open MPI
// itself sees the nodes, and uses shared memory inside them and TCP between them.
#include "bench/commbench/mpi_launch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "base/whole_number.h"
#include "bench/commbench/child_process.h"
#include "bench/commbench/node_daemons.h"
#include "bench/commbench/rank_environment.h"

namespace hdt::bench {
namespace {

// A Job as text. The launching process sets it for its ranks.
constexpr const char* kJob = "HDT_COMMBENCH_JOB";

// The stand-in for ssh: drops the host name and runs the command. Two of mpirun's daemons on one machine
// would use the same names for their files of shared memory, so each gets a folder of its own.
constexpr const char* kShell = R"(#!/bin/sh
shift
TMPDIR=$(mktemp -d -p /dev/shm) || exit 1
OMPI_MCA_btl_vader_backing_directory=$TMPDIR
export TMPDIR OMPI_MCA_btl_vader_backing_directory
code=0
/bin/sh -c "$*" || code=$?
rm -rf "$TMPDIR"
exit $code
)";

// The stand-in as an executable file, which is removed with the object. path() is empty if it could not
// be written.
class LocalShell {
 public:
  LocalShell() {
    char name[] = "/tmp/hdt-commbench-shell-XXXXXX";
    const int fd = mkstemp(name);
    if (fd < 0) return;
    const std::string text = kShell;
    const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    const bool executable = fchmod(fd, 0700) == 0;
    close(fd);
    if (written && executable) path_ = name;
  }
  ~LocalShell() {
    if (!path_.empty()) unlink(path_.c_str());
  }
  LocalShell(const LocalShell&) = delete;
  LocalShell& operator=(const LocalShell&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// The whole command line, this program with its own arguments in the end.
std::vector<std::string> mpirun_arguments(const Options& options, const std::string& shell, char** argv) {
  const int ranks = rank_count(options);
  std::vector<std::string> arguments{"mpirun", "--oversubscribe", "--bind-to", "none"};
  // A parameter of Open MPI.
  const auto set = [&arguments](const char* key, const std::string& value) {
    arguments.insert(arguments.end(), {"--mca", key, value});
  };
  if (geteuid() == 0) arguments.emplace_back("--allow-run-as-root");
  // mpirun's shared topology sometimes collides with what is mapped already (Open MPI 4.1.4).
  set("rtc", "^hwloc");
  // --oversubscribe makes MPI yield in its loops. It shall do so only if there are fewer cores than
  // ranks.
  set("mpi_yield_when_idle", ranks <= static_cast<int>(std::thread::hardware_concurrency()) ? "0" : "1");
  // The peers are compared over TCP on loopback, as HDT's emulated nodes are.
  if (options.nodes > 1) {
    set("pml", "ob1");
    set("btl_tcp_if_include", "lo");
    set("oob_tcp_if_include", "lo");
    set("btl", options.local > 1 ? "vader,tcp,self" : "tcp,self");
  }
  // Several ranks a node: mpirun believes that the nodes are hosts, which it reaches by `shell`.
  if (options.nodes > 1 && options.local > 1) {
    set("plm_rsh_agent", shell);
    std::string hosts;
    for (int node = 0; node < options.nodes; ++node) {
      hosts += fmt::format("{}hdt-node{}:{}", node == 0 ? "" : ",", node, options.local);
    }
    arguments.insert(arguments.end(), {"--host", hosts});
  }
  arguments.insert(arguments.end(),
                   {"-x", kJob, "-np", std::to_string(ranks), program_folder() + "/hdt-commbench"});
  for (char** argument = argv + 1; *argument != nullptr; ++argument) arguments.emplace_back(*argument);
  return arguments;
}

// The launcher's part: daemons, mpirun, waiting.
int launch(const Options& options, char** argv) {
  const Result<int> port = find_free_port();
  const LocalShell shell;
  if (!port.is_ok() || shell.path().empty()) {
    std::fprintf(stderr, "hdt-commbench: %s\n",
                 port.is_ok() ? "cannot write a temporary file in /tmp" : port.status().to_string().c_str());
    return 1;
  }
  const pid_t launcher = getpid();
  Job job{port.value(), launcher, ""};
  const Result<NodeDaemons> daemons = NodeDaemons::start(options, job);
  if (!daemons.is_ok()) {
    std::fprintf(stderr, "hdt-commbench: %s\n", daemons.status().message().c_str());
    return 1;
  }
  // mpirun passes it on to the ranks (-x).
  setenv(kJob, job.to_text().c_str(), 1);
  std::vector<std::string> arguments = mpirun_arguments(options, shell.path(), argv);
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) {
    std::fprintf(stderr, "hdt-commbench: starting mpirun: %s\n",
                 Status::from_errno("fork", errno).message().c_str());
    return 1;
  }
  if (pid == 0) {
    // At SIGTERM, mpirun ends its ranks.
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != launcher) _exit(1);
    execvp(pointers[0], pointers.data());
    std::fprintf(stderr, "hdt-commbench: --engine: mpi needs mpirun in PATH; install openmpi-bin\n");
    _exit(2);
  }
  Result<Child> child = watch("mpirun", pid);
  if (!child.is_ok()) return 1;
  std::vector<Child> children{child.take()};
  return wait_for_all(children, options);
}

}  // namespace

int run_mpi_ranks(const Options& options, char** argv, const std::function<int()>& rank_main) {
  const char* job = std::getenv(kJob);
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  if (job == nullptr || rank == nullptr) return launch(options, argv);
  const Result<Job> parsed = Job::parse(job);
  if (!parsed.is_ok()) {
    std::fprintf(stderr, "hdt-commbench: %s: %s\n", kJob, parsed.status().message().c_str());
    return 2;
  }
  const auto number = whole_number<int>(rank);
  if (!number) {
    std::fprintf(stderr, "hdt-commbench: OMPI_COMM_WORLD_RANK: '%s' given; expected a rank\n", rank);
    return 2;
  }
  set_rank_environment(options, parsed.value(), *number);
  return rank_main();
}

}  // namespace hdt::bench
