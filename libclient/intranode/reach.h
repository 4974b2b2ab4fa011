// reach.h: whether the ranks of a node may reach each other's memory through the kernel. It depends on users,
// on the system's settings and on containers, so it is tried, once: every rank reads a proof in the memory of
// every other, tells the result in its board, and the way is taken only if all can reach all.
//
// A number of a process proves nothing: in another PID namespace it is another process, and later it is
// another one here. So each rank keeps 128 random bits, of this group alone, in its own memory, and says in
// its board what they are and where:
//  - who reads a rank's memory reads the proof in the same system call, in which the kernel looks at one
//    address space: a read that brings the proof was a read of that rank (ProvenRead);
//  - who writes reads the proof just before. In between, for some microseconds, the process could end and its
//    number be given anew, or it could exec; Linux has no write that excludes that.
// The proof is wiped in children of fork(), which have the same memory otherwise, and it goes with the group.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "base/wiped_page.h"
#include "libclient/common/node_access.h"

namespace hdt::client {

// The process of another rank, and what proves it.
struct Process {
  pid_t pid = 0;
  uint64_t proof_address = 0;
  std::array<uint64_t, 2> proof{};
};
// As the rank's board says; nothing is proved by it.
Process process_of(const session::Board& board);

// `bytes` at `address` of the process. kSystem where it cannot be read, or is another process.
Status read_proven(const Process& from, uint64_t address, void* to, size_t bytes);
Status write_proven(const Process& to, uint64_t address, const void* from, size_t bytes);

// The PID namespace of this process, as a number that no other one has while it lives; 0: /proc does not say.
uint64_t pid_namespace();

class Reach {
 public:
  enum class Answer : uint8_t { kNotYet, kNo, kYes };

  // Offers the proof of this process to the others; before the first call is posted.
  explicit Reach(const NodeAccess& access);
  // Every rank of the node has posted a call (so has offered its proof). Tries, tells, and looks at what the
  // others told.
  Answer ask();
  // Whether that rank's process is known to have ended. Not where its number means nothing here.
  bool gone(uint32_t local) const;

 private:
  void offer();
  bool try_all() const;

  const NodeAccess& access_;
  WipedPage page_;  // holds the proof
  Answer known_ = Answer::kNotYet;
};

}  // namespace hdt::client
