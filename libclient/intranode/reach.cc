// reach.cc: proofs and accesses through the kernel. A rank publishes in an order: the proof's bits
// first, its address last with release; a reader loads the address first, with acquire. The result of
// the trial is one word in the rank's state.
#include "libclient/intranode/reach.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/hmac.h"
#include "base/log.h"

namespace hdt::client {

namespace {

// Values of RankState::reach; 0: not tried yet.
constexpr uint32_t kCannot = 1;
constexpr uint32_t kCan = 2;

using Proof = std::array<uint64_t, 2>;

// The failure of an access whose proof did not match.
Status another_process(const Process& process) {
  return {Code::kSystem, "process " + std::to_string(process.pid) + " is not the rank's (any more)"};
}

// Reads the proof and, behind it, `bytes` of `remote_part` into `local_part`, in one system call. Null:
// the proof alone. process_vm_readv() goes through the parts in order, and stops at the first one that
// it cannot read.
Status read_with_proof(const Process& from, const iovec* local_part, const iovec* remote_part, size_t bytes) {
  Proof found{};
  const iovec local[] = {{found.data(), sizeof found}, local_part != nullptr ? *local_part : iovec{}};
  const iovec remote[] = {{reinterpret_cast<void*>(from.proof_address), sizeof found},
                          remote_part != nullptr ? *remote_part : iovec{}};
  const unsigned long parts = local_part != nullptr ? 2 : 1;
  const ssize_t moved = ::process_vm_readv(from.pid, local, parts, remote, parts, 0);
  // Kept, as the text below is made by calls that may change it.
  const int error = errno;
  // Bytes of another process may be in the caller's buffer now. They are no result, as the call has
  // failed.
  if (moved >= static_cast<ssize_t>(sizeof found) && found != from.proof) return another_process(from);
  if (moved == static_cast<ssize_t>(sizeof found + bytes)) return Status::ok();
  return Status::from_errno("reading memory of process " + std::to_string(from.pid),
                            moved < 0 ? error : EFAULT);
}

// Whether the system lets this process write memory of others as it lets it read. The kernel asks the
// same of the target in both cases, but a filter of system calls may tell them apart. It is tried on the
// process itself, so that nobody else is written.
bool may_write() {
  uint64_t from = 1;
  uint64_t to = 0;
  const iovec local{&from, sizeof from};
  const iovec remote{&to, sizeof to};
  // volatile: the compiler does not know that the system call has changed `to`.
  return ::process_vm_writev(::getpid(), &local, 1, &remote, 1, 0) == sizeof from &&
         *const_cast<volatile uint64_t*>(&to) == 1;
}

}  // namespace

// acquire pairs with the release in offer().
Process process_of(const ipc::RankState& rank_state) {
  Process process;
  process.pid = static_cast<pid_t>(rank_state.pid.load(std::memory_order_relaxed));
  process.proof_address = rank_state.proof_address.load(std::memory_order_acquire);
  for (size_t i = 0; i < process.proof.size(); ++i)
    process.proof[i] = rank_state.proof[i].load(std::memory_order_relaxed);
  return process;
}

Status read_proven(const Process& from, uint64_t address, void* to, size_t bytes) {
  const iovec local{to, bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  return read_with_proof(from, &local, &remote, bytes);
}

// A short write has the error of a bad address: the kernel stops at the first page that it cannot write.
Status write_proven(const Process& to, uint64_t address, const void* from, size_t bytes) {
  HDT_RETURN_IF_ERROR(read_with_proof(to, nullptr, nullptr, 0));
  const iovec local{const_cast<void*>(from), bytes};
  const iovec remote{reinterpret_cast<void*>(address), bytes};
  const ssize_t moved = ::process_vm_writev(to.pid, &local, 1, &remote, 1, 0);
  if (moved == static_cast<ssize_t>(bytes)) return Status::ok();
  return Status::from_errno("writing memory of process " + std::to_string(to.pid),
                            moved < 0 ? errno : EFAULT);
}

// Device and inode of the namespace's file identify it.
uint64_t pid_namespace() {
  struct stat info {};
  if (::stat("/proc/self/ns/pid", &info) != 0) return 0;
  return info.st_dev << 32 ^ info.st_ino;
}

Reach::Reach(const NodeAccess& access) : access_(access) {
  access_.rank_state().pid_namespace.store(pid_namespace(), std::memory_order_relaxed);
  offer();
}

void Reach::offer() {
  auto page = WipedPage::make();
  Proof proof{};
  const Status drawn =
      page.is_ok() ? random_bytes({reinterpret_cast<uint8_t*>(proof.data()), sizeof proof}) : page.status();
  if (!drawn.is_ok()) {
    HDT_LOG_WARN("this rank's memory is not offered to the others of its node, and goes through slots: {}",
                 drawn.message());
    return;
  }
  page_ = page.take();
  // The page is filled before its address is published.
  *static_cast<Proof*>(page_.data()) = proof;
  ipc::RankState& rank_state = access_.rank_state();
  for (size_t i = 0; i < proof.size(); ++i) rank_state.proof[i].store(proof[i], std::memory_order_relaxed);
  rank_state.proof_address.store(reinterpret_cast<uint64_t>(page_.data()), std::memory_order_release);
}

// Only reading is tried on the others; the permission to write follows from may_write().
bool Reach::try_all() const {
  if (!may_write()) return false;
  const uint64_t here = access_.rank_state().pid_namespace.load(std::memory_order_relaxed);
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    if (i == access_.local) continue;
    const ipc::RankState& rank_state = access_.segment.rank_state(i);
    const Process process = process_of(rank_state);
    // In another namespace the number may be a stranger's. Nothing of a stranger is read either.
    if (process.proof_address == 0 || here == 0 ||
        rank_state.pid_namespace.load(std::memory_order_relaxed) != here)
      return false;
    if (!read_with_proof(process, nullptr, nullptr, 0).is_ok()) return false;
  }
  return true;
}

// The trial is made once. The answer is the same on all ranks, as all look at the same words, and none
// of them changes once it is not 0.
Reach::Answer Reach::ask() {
  if (known_ != Answer::kNotYet) return known_;
  ipc::RankState& mine = access_.rank_state();
  if (mine.reach.load(std::memory_order_relaxed) == 0) {
    mine.reach.store(try_all() ? kCan : kCannot, std::memory_order_release);
    access_.ring_peers();
  }
  Answer answer = Answer::kYes;
  for (uint32_t i = 0; i < access_.layout().local_ranks; ++i) {
    const uint32_t told = access_.segment.rank_state(i).reach.load(std::memory_order_acquire);
    if (told == 0) return Answer::kNotYet;
    if (told != kCan) answer = Answer::kNo;
  }
  return known_ = answer;
}

bool Reach::ended(uint32_t local) const {
  const uint64_t here = access_.rank_state().pid_namespace.load(std::memory_order_relaxed);
  const ipc::RankState& rank_state = access_.segment.rank_state(local);
  if (here == 0 || rank_state.pid_namespace.load(std::memory_order_relaxed) != here) return false;
  // Signal 0 only asks. ESRCH: no such process. If the number was given to another process meanwhile,
  // the answer is "not ended", which costs no more than a wait.
  const auto pid = static_cast<pid_t>(rank_state.pid.load(std::memory_order_relaxed));
  return ::kill(pid, 0) != 0 && errno == ESRCH;
}

}  // namespace hdt::client
