// environment.h: which job this process was started in, from the variables that its launcher has set:
// the rank, the number of ranks, and where the ranks meet. The order of look-up is documented at
// hdtCommInit (hdt.h). All functions are pure but for the variables that they read, and wait for
// nothing. The variables are read through a function, so that tests supply their own.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/status.h"

namespace hdt::client {

// As std::getenv: null for a variable that is not set.
using GetVariable = std::function<const char*(const char* name)>;

// Where the ranks of a job meet.
struct Rendezvous {
  enum class Kind {
    kNone,
    kAddress,    // rank 0's daemon listens at host:port
    kPmix,       // rank 0 publishes the group's id through PMIx
    kFirstNode,  // as kAddress; host is srun's first node, where rank 0 runs, and port comes from the step's
                 // number
  };
  Kind kind = Kind::kNone;
  std::string host;
  // 1 to 65535, of kAddress and kFirstNode.
  int port = 0;
  // The variable it came from, for messages.
  std::string source;

  // The place in the user's words: "MASTER_ADDR=localhost, MASTER_PORT=29500". HDT itself listens at the
  // port behind MASTER_PORT, as torch listens there.
  std::string text() const {
    if (source == "MASTER_ADDR") return "MASTER_ADDR=" + host + ", MASTER_PORT=" + std::to_string(port - 1);
    return source + "=" + host + ", port " + std::to_string(port);
  }
};

// This process's place in its job. Without any launcher: rank 0 of 1.
struct Job {
  int rank = 0;
  std::optional<int> size =
      1;               // not known from variables if only PMIX_RANK is set: ask PMIx for the job's size
  std::string source;  // "HDT_RANK", "OMPI_COMM_WORLD_RANK", ..., or "none of the launchers' variables"
  Rendezvous rendezvous;
};

// Reads the variables. kConfig, naming the variable: one of them holds garbage, they contradict each
// other, or nothing says where several ranks meet.
Result<Job> detect_job(const GetVariable& variable);

// As std::getenv, but "" for a variable that is not set.
using GetText = std::function<std::string(const char* name)>;
// The variable of this process's environment.
std::string environment_text(const char* name);

// A secret that all processes of this job have and nobody else; "" if there is none. HDT_JOB_SECRET
// comes first. Open MPI's mpirun draws 128 random bits for each run and gives them to its processes.
// They are the job's secret only if the run spans hosts (a job can also be one mpirun on each host), and
// if no other variable says who the ranks are.
std::string job_secret(const GetText& variable);

// "host:port", "1.2.3.4:port" or "[v6 address]:port". `name` is the variable, for the message of
// kConfig.
Result<Rendezvous> parse_address(const std::string& name, const std::string& text);

// The first host of a Slurm node list: "rack[1-2]n[01-04,07],x" -> "rack1n01". kConfig: the list is
// malformed.
Result<std::string> first_slurm_host(const std::string& list);

// The port where the ranks of a Slurm step meet if nothing else is given: 20000 + (job + 997 * step) mod
// 12000. That is below the range from which Linux picks ports of its own (32768 and up).
int slurm_port(uint64_t job, uint64_t step);

}  // namespace hdt::client
