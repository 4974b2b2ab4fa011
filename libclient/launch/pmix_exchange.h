// pmix_exchange.h: hands a few bytes from one rank of a job to the others through the launcher's PMIx
// server. Used once for each hdtCommInit, for the group's id (group/bootstrap.cc). libpmix is loaded at
// run time, so that programs run without it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace hdt::client {

// The process's connection to its PMIx server. Any thread. The values are public to the job, and to
// nobody else as far as the launcher protects its server.
class PmixExchange {
 public:
  // The only one; made at the first call, kept until the process exits. It can share the process with
  // MPI, before MPI_Init and after MPI_Finalize too. kNoDaemon: there is no server, or no libpmix; the
  // result of the first call is final.
  static Result<PmixExchange*> instance();

  // The number of ranks in this process's job, asked from the server; waits for at most ten seconds.
  // kSystem: the server does not say.
  Result<int> job_size();
  // This process's rank.
  int rank() const { return rank_; }

  // Makes `value` (1 byte to 64 KiB) known to the job under `key` (1 to 511 bytes). A key must be new:
  // PMIx servers and clients keep old values of a key that is published twice. kInvalidArgument: a size
  // is out of range. kSystem: the server refuses.
  Status publish(const std::string& key, std::span<const uint8_t> value);

  // The value that `rank` publishes under `key`; waits until it does, at most until the deadline
  // (kTimeout). kSystem: the server refuses, or the value is not ours.
  Result<std::vector<uint8_t>> fetch(int rank, const std::string& key, Deadline deadline);

  PmixExchange(const PmixExchange&) = delete;
  PmixExchange& operator=(const PmixExchange&) = delete;

 private:
  PmixExchange(std::string name_space, int rank) : name_space_(std::move(name_space)), rank_(rank) {}
  // The first call of instance().
  static Result<PmixExchange*> connect();

  std::string name_space_;
  int rank_;
};

}  // namespace hdt::client
