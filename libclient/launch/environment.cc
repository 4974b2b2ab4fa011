// environment.cc: ranks and meeting place from launchers' variables. The ranks are found first: by HDT's
// own variables, torchrun's, mpirun's, a PMIx server's, srun's, or plain RANK and WORLD_SIZE, in this
// order. The meeting place depends on which of them it was.
#include "libclient/launch/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "base/whole_number.h"

namespace hdt::client {
namespace {

// Bounds of values that are accepted from variables.
constexpr int64_t kMaxRanks = 1 << 20;
constexpr int64_t kMaxPort = 65'535;

// The failure of everything here: it names the variable, and what was expected.
Status fail(const std::string& variable, const std::string& what) {
  return {Code::kConfig, fmt::format("environment {}: {}", variable, what)};
}

// One run over the variables. It exists for the state between the two halves: which variables said who
// the ranks are.
class Detector {
 public:
  explicit Detector(const GetVariable& variable) : variable_(variable) {}

  Result<Job> detect() {
    Job job;
    HDT_RETURN_IF_ERROR(find_ranks(job));
    HDT_RETURN_IF_ERROR(find_rendezvous(job));
    return job;
  }

 private:
  // Empty variables count as not set, as scripts clear them this way.
  std::optional<std::string> text(const char* name) const {
    const char* value = variable_(name);
    if (value == nullptr || *value == '\0') return std::nullopt;
    return std::string(value);
  }
  bool is_set(const char* name) const { return text(name).has_value(); }

  // The variable as an integer within the bounds; kConfig otherwise, also if it is not set.
  Result<int64_t> integer(const char* name, int64_t lowest, int64_t highest) const {
    const std::optional<std::string> value = text(name);
    const std::string expected = fmt::format("expected an integer {}..{}, ", lowest, highest);
    if (!value) return fail(name, expected + "but it is not set");
    const std::optional<int64_t> number = whole_number<int64_t>(*value);
    if (!number || *number < lowest || *number > highest) {
      return fail(name, fmt::format("{}found \"{}\"", expected, value->substr(0, 64)));
    }
    return *number;
  }

  // Fills in rank and size of `job` from two variables, which must both be set and fit each other.
  Status read_pair(const char* rank_name, const char* size_name, Job& job) const {
    const Result<int64_t> rank = integer(rank_name, 0, kMaxRanks - 1);
    if (!rank.is_ok()) return rank.status();
    const Result<int64_t> size = integer(size_name, 1, kMaxRanks);
    if (!size.is_ok()) return size.status();
    if (rank.value() >= size.value()) {
      return fail(rank_name, fmt::format("expected a rank below {}={}, found {}", size_name, size.value(),
                                         rank.value()));
    }
    job.rank = static_cast<int>(rank.value());
    job.size = static_cast<int>(size.value());
    job.source = rank_name;
    return Status::ok();
  }

  // Fills in rank, size and source of `job`. If no variable is set, it stays rank 0 of 1.
  Status find_ranks(Job& job) {
    if (is_set("HDT_RANK") || is_set("HDT_SIZE")) return read_pair("HDT_RANK", "HDT_SIZE", job);
    // torchrun's workers inherit the variables of the srun or mpirun that started torchrun itself, once
    // for each node. Only torchrun's own variables are true of the worker.
    torch_variables_ = is_set("TORCHELASTIC_RUN_ID");
    if (torch_variables_) return read_pair("RANK", "WORLD_SIZE", job);
    job.source.clear();
    HDT_RETURN_IF_ERROR(find_launcher(job));
    const bool launched = !job.source.empty();
    if (!is_set("RANK") && !is_set("WORLD_SIZE")) {
      if (!launched) job.source = "none of the launchers' variables";
      return Status::ok();
    }
    if (!launched) return read_pair("RANK", "WORLD_SIZE", job);
    return choose_between(job);
  }

  // Fills in `job` from mpirun, a PMIx server or srun. Its source stays empty if none of them started
  // this process.
  Status find_launcher(Job& job) {
    if (is_set("OMPI_COMM_WORLD_RANK") || is_set("OMPI_COMM_WORLD_SIZE")) {
      size_name_ = "OMPI_COMM_WORLD_SIZE";
      return read_pair("OMPI_COMM_WORLD_RANK", size_name_, job);
    }
    // A batch script has SLURM_PROCID and SLURM_NTASKS too, but it is not one of the tasks: only a step
    // is srun's.
    const bool step = is_set("SLURM_PROCID") && is_set("SLURM_STEP_ID");
    // PMIx has no variable for the size: the server is asked later (bootstrap.cc).
    if (is_set("PMIX_RANK")) {
      if (!is_set("PMIX_NAMESPACE")) return fail("PMIX_RANK", "set, but PMIX_NAMESPACE is not");
      const Result<int64_t> rank = integer("PMIX_RANK", 0, kMaxRanks - 1);
      if (!rank.is_ok()) return rank.status();
      job.rank = static_cast<int>(rank.value());
      job.size = std::nullopt;
      job.source = "PMIX_RANK";
      return Status::ok();
    }
    if (!step) return Status::ok();
    // SLURM_NTASKS may speak of the whole allocation.
    size_name_ = is_set("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    return read_pair("SLURM_PROCID", size_name_, job);
  }

  // `job` has the launcher's values, and RANK or WORLD_SIZE are set as well. A script that is the only
  // task of its launcher (srun --pty, mpirun -np 1) may start several processes and give each its
  // variables: those are meant then. Otherwise the two must agree: which one a user means cannot be
  // known, and ranks that decide differently never meet.
  Status choose_between(Job& job) {
    const auto contradiction = [&](const std::string& launcher) {
      return fail(
          "RANK",
          fmt::format("RANK={} and WORLD_SIZE={} contradict {}: unset those that are not meant, or set "
                      "HDT_RANK and HDT_SIZE",
                      text("RANK").value_or("(not set)"), text("WORLD_SIZE").value_or("(not set)"),
                      launcher));
    };
    // The launcher is known by PMIX_RANK alone, so the size is not known yet. A complete set of torch's
    // variables is taken for meant.
    if (!job.size) {
      const std::string launcher = fmt::format("PMIX_RANK={}", job.rank);
      if (is_set("RANK") && is_set("WORLD_SIZE") && is_set("MASTER_ADDR") && is_set("MASTER_PORT")) {
        torch_variables_ = true;
        return read_pair("RANK", "WORLD_SIZE", job);
      }
      if (!is_set("RANK") || *text("RANK") == std::to_string(job.rank)) return Status::ok();
      return contradiction(launcher);
    }
    const std::string launcher = fmt::format("{}={} and {}={}", job.source, job.rank, size_name_, *job.size);
    // A variable that is not set contradicts nothing.
    const bool same_rank = !is_set("RANK") || *text("RANK") == std::to_string(job.rank);
    const bool same_size = !is_set("WORLD_SIZE") || *text("WORLD_SIZE") == std::to_string(*job.size);
    if (same_rank && same_size) return Status::ok();
    // More than one task: the launcher started the ranks itself.
    if (*job.size != 1 || !is_set("RANK") || !is_set("WORLD_SIZE")) return contradiction(launcher);
    torch_variables_ = true;
    return read_pair("RANK", "WORLD_SIZE", job);
  }

  // Fills in where the ranks meet. A job of one rank needs no place, but a wrong variable is an error
  // there, too.
  Status find_rendezvous(Job& job) const {
    if (const auto address = text("HDT_RENDEZVOUS")) {
      Result<Rendezvous> parsed = parse_address("HDT_RENDEZVOUS", *address);
      if (!parsed.is_ok()) return parsed.status();
      job.rendezvous = parsed.take();
    } else if (is_set("PMIX_NAMESPACE") && !torch_variables_) {
      job.rendezvous = {Rendezvous::Kind::kPmix, "", 0, "PMIX_NAMESPACE"};
    } else if (is_set("MASTER_ADDR") || is_set("MASTER_PORT")) {
      auto host = text("MASTER_ADDR");
      if (!host) return fail("MASTER_ADDR", "expected a host, since MASTER_PORT is set, but it is not set");
      // torch itself listens at MASTER_PORT, so HDT takes the port behind it, which must exist.
      const Result<int64_t> port = integer("MASTER_PORT", 1, kMaxPort - 1);
      if (!port.is_ok()) return port.status();
      // An IPv6 address may have brackets, or none.
      if (host->size() > 2 && host->front() == '[' && host->back() == ']')
        host = host->substr(1, host->size() - 2);
      // One colon is a port that does not belong here; an IPv6 address has more.
      if (std::count(host->begin(), host->end(), ':') == 1 ||
          host->find_first_of("[]/ \t") != std::string::npos) {
        return fail("MASTER_ADDR",
                    fmt::format("expected the name or address of rank 0's host, without a port, found "
                                "\"{}\"",
                                host->substr(0, 256)));
      }
      job.rendezvous = {Rendezvous::Kind::kAddress, *host, static_cast<int>(port.value()) + 1, "MASTER_ADDR"};
    } else if (is_set("SLURM_STEP_ID") && is_set("SLURM_STEP_NODELIST")) {
      return first_node(job);
    }
    if (job.size == 1) {
      job.rendezvous = {};
    } else if (job.rendezvous.kind == Rendezvous::Kind::kNone) {
      return fail("HDT_RENDEZVOUS",
                  fmt::format("expected host:port of rank 0, since {} makes this one of {} ranks and "
                              "no launcher sets where they meet, but it is not set",
                              job.source, job.size.value_or(0)));
    }
    return Status::ok();
  }

  // srun's ranks meet at the step's first node, where rank 0 runs, at a port that all compute from the
  // numbers of job and step.
  Status first_node(Job& job) const {
    if (job.size == 1) return Status::ok();
    constexpr int64_t kMaxId = 0xffff'ffff;
    const Result<int64_t> job_id = integer("SLURM_JOB_ID", 0, kMaxId);
    if (!job_id.is_ok()) return job_id.status();
    const Result<int64_t> step_id = integer("SLURM_STEP_ID", 0, kMaxId);
    if (!step_id.is_ok()) return step_id.status();
    Result<std::string> host = first_slurm_host(*text("SLURM_STEP_NODELIST"));
    if (!host.is_ok()) return host.status();
    const int port =
        slurm_port(static_cast<uint64_t>(job_id.value()), static_cast<uint64_t>(step_id.value()));
    job.rendezvous = {Rendezvous::Kind::kFirstNode, host.take(), port, "SLURM_STEP_NODELIST"};
    return Status::ok();
  }

  const GetVariable& variable_;
  // RANK and WORLD_SIZE are meant, whatever an outer launcher says.
  bool torch_variables_ = false;
  // The launcher's variable for the number of ranks, for messages.
  const char* size_name_ = nullptr;
};

}  // namespace

std::string environment_text(const char* name) {
  const char* const value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
  return value == nullptr ? "" : value;
}

// Open MPI's text counts only if it is known to all ranks and to nobody else. If a variable of another
// launcher is set, mpirun may have started only a part of the job. If all of its ranks are here, the job
// may be one mpirun on each host, each with a text of its own.
std::string job_secret(const GetText& variable) {
  if (const std::string secret = variable("HDT_JOB_SECRET"); !secret.empty()) return secret;
  for (const char* other : {"HDT_RANK", "HDT_SIZE", "RANK", "WORLD_SIZE"}) {
    if (!variable(other).empty()) return {};
  }
  const std::string drawn = variable("OMPI_MCA_orte_precondition_transports");
  const std::string all = variable("OMPI_COMM_WORLD_SIZE");
  const std::string here = variable("OMPI_COMM_WORLD_LOCAL_SIZE");
  if (drawn.empty() || all.empty() || here.empty() || all == here) return {};
  return "mpirun " + drawn;
}

Result<Job> detect_job(const GetVariable& variable) { return Detector(variable).detect(); }

Result<Rendezvous> parse_address(const std::string& name, const std::string& text) {
  const auto wrong = [&] {
    return fail(name,
                fmt::format("expected host:port or [IPv6 address]:port with a port 1..65535, found \"{}\"",
                            text.substr(0, 256)));
  };
  // The last colon separates the port, since an IPv6 address has colons of its own. Such an address must
  // be in brackets, and nothing else may be.
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return wrong();
  std::string host = text.substr(0, colon);
  const std::optional<int64_t> port = whole_number<int64_t>(std::string_view(text).substr(colon + 1));
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (bracketed) host = host.substr(1, host.size() - 2);
  const bool brackets_wrong =
      host.find_first_of("[]") != std::string::npos || bracketed != (host.find(':') != std::string::npos);
  if (!port || *port < 1 || *port > kMaxPort || host.empty() || brackets_wrong) return wrong();
  return Rendezvous{Rendezvous::Kind::kAddress, host, static_cast<int>(*port), name};
}

Result<std::string> first_slurm_host(const std::string& list) {
  const auto wrong = [&list](const char* what) {
    return fail("SLURM_STEP_NODELIST", fmt::format("{} in \"{}\"", what, list.substr(0, 256)));
  };
  std::string host;
  // Copies characters up to the first comma outside of brackets; for a bracket, the first number in it.
  for (size_t i = 0; i < list.size() && list[i] != ','; ++i) {
    if (list[i] == ']') return wrong("a ] without its [");
    if (list[i] != '[') {
      host += list[i];
      continue;
    }
    // "[01-04,07]": the first number, with its zeros, stands for the bracket.
    const size_t close = list.find(']', i);
    if (close == std::string::npos) return wrong("a [ without its ]");
    const size_t end = list.find_first_of("-,]", i + 1);
    if (end == i + 1 || list.find_first_not_of("0123456789", i + 1) != end)
      return wrong("no number after a [");
    host += list.substr(i + 1, end - i - 1);
    i = close;
  }
  if (host.empty()) return wrong("no host name first");
  return host;
}

int slurm_port(uint64_t job, uint64_t step) {
  constexpr uint64_t kFirst = 20'000;
  constexpr uint64_t kPorts = 12'000;
  return static_cast<int>(kFirst + (job + 997 * step) % kPorts);
}

}  // namespace hdt::client
