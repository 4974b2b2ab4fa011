// pmix_exchange.h: handing a few bytes from one rank of a job to the others through the launcher's PMIx
// server. libpmix is loaded at run time, so that programs run without it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace hdt::client {

class PmixExchange {
 public:
  // The process's connection to its PMIx server; made at the first call, kept until the process exits. It can
  // share the process with MPI, before MPI_Init and after MPI_Finalize too. kNoDaemon if there is no server
  // or no libpmix.
  static Result<PmixExchange*> instance();

  // Number of ranks in the job this process belongs to, and this process's rank.
  Result<int> job_size();
  int rank() const { return rank_; }

  // Makes `value` (at most 64 KiB) known to the job under `key`. A key must be new: PMIx servers and clients
  // keep old values of a key that is published twice.
  Status publish(const std::string& key, std::span<const uint8_t> value);

  // The value that `rank` publishes under `key`; waits until it does. kTimeout when the deadline passes
  // first.
  Result<std::vector<uint8_t>> fetch(int rank, const std::string& key, Deadline deadline);

  PmixExchange(const PmixExchange&) = delete;
  PmixExchange& operator=(const PmixExchange&) = delete;

 private:
  PmixExchange(std::string name_space, int rank) : name_space_(std::move(name_space)), rank_(rank) {}
  static Result<PmixExchange*> connect();

  std::string name_space_;
  int rank_;
};

}  // namespace hdt::client
