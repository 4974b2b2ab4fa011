// reach.h: whether the ranks of a node may reach each other's memory through the kernel. That depends on
// users, on the system's settings and on containers, so it is tried, once: every rank reads a proof in
// the memory of every other rank and publishes the result in its state, and the protocol is taken only if all
// ranks can reach all.
//
// The number of a process proves nothing: in another PID namespace it is another process, and later it
// is another one here. So each rank keeps 128 random bits, of this group alone, in its own memory, and
// publishes in its state what they are and where they stand:
// - A reader of a rank's memory reads the proof in the same system call, in which the kernel looks at
//   one address space. So a read that brings the proof was a read of that rank.
// - A writer reads the proof just before it writes. In between, for some microseconds, the process could
//   end and its number be given to another one, or it could exec; Linux has no write that excludes that.
//
// The proof is wiped in children of fork(), which have the same memory otherwise, and it goes with the
// group.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>

#include "base/wiped_page.h"
#include "libclient/common/node_access.h"

namespace hdt::client {

// The process of another rank, and its proof.
struct Process {
  pid_t pid = 0;
  // An address in that process; 0: it offers no proof, and cannot be reached.
  uint64_t proof_address = 0;
  std::array<uint64_t, 2> proof{};
};
// As the rank's state says it. The values are the rank's own; the proof is compared at each access.
Process process_of(const ipc::RankState& rank_state);

// Reads `bytes` at `address` of the process. kSystem: they cannot be read, or it is another process;
// `to` then holds anything.
Status read_proven(const Process& from, uint64_t address, void* to, size_t bytes);
// Writes `bytes` to `address` of the process, after its proof was read. Errors as above; a part may be
// written.
Status write_proven(const Process& to, uint64_t address, const void* from, size_t bytes);

// The PID namespace of this process, as a number that no other namespace has while it lives; 0: /proc
// does not say.
uint64_t pid_namespace();

// Owned by the IntranodeQueue; used with the communicator's lock held.
class Reach {
 public:
  // kNotYet: not all ranks have published their result. Once it is kNo or kYes, it stays.
  enum class Answer : uint8_t { kNotYet, kNo, kYes };

  // Offers the proof of this process to the others, before the first call is posted. If the system
  // refuses, nothing is offered, the log says so, and ask() comes to kNo.
  explicit Reach(const NodeAccess& access);
  // Tries, publishes, and looks at what the others have published. To be called only when every rank of
  // the node has posted a call, and so has offered its proof. Rings the peers when it publishes.
  Answer ask();
  // An earlier ask() has come to kNo.
  bool is_refused() const { return known_ == Answer::kNo; }
  // Whether that rank's process is known to have ended. False where its number means nothing here.
  bool ended(uint32_t local) const;

 private:
  // Draws the proof and publishes it.
  void offer();
  // Whether this rank can reach every other one of the node.
  bool try_all() const;

  const NodeAccess& access_;
  // Holds the proof.
  WipedPage page_;
  Answer known_ = Answer::kNotYet;
};

}  // namespace hdt::client
