// local_mover.h: moves and combines elements between the buffers of a node's ranks: through mappings if
// there are any, otherwise through the kernel (process_vm_readv and process_vm_writev), block by block.
// Every access through the kernel is to a process that has been proved to be the rank's (reach.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "libclient/common/node_access.h"
#include "libclient/intranode/local_work.h"
#include "libclient/intranode/reach.h"

namespace hdt::client {

// One rank's buffers of a call, as this process reaches them. Filled in by the IntranodeQueue for each call.
struct Reached {
  // The buffers as mapped here. Null: they are not mapped, and lie at the addresses below in `process`.
  std::byte* send = nullptr;
  std::byte* recv = nullptr;
  uint64_t send_address = 0;
  uint64_t recv_address = 0;
  Process process;
  // sendbuf and recvbuf are the same memory.
  bool in_place = false;
};

// Owned by the IntranodeQueue; used with the communicator's lock held. The functions take the buffers of all
// ranks, by local rank, and a task whose ranges lie within them.
class LocalMover {
 public:
  explicit LocalMover(const NodeAccess& access) : access_(access) {}

  // Does a task in other ranks' buffers. Between blocks it looks whether the group has failed, and ends
  // early if so, with success: the caller looks, too. `RankState::touching` is up during blocks. kSystem,
  // with the pid: a process cannot be reached any more, or is not the rank's.
  Status run(const ipc::Call& call, const Task& task, std::span<const Reached> ranks);
  // Does a task from contributions that are all mapped (descriptors, payloads, the own sendbuf) to this
  // rank's recvbuf. Nobody else's buffers are touched, and nothing can fail.
  void run_own(const ipc::Call& call, const Task& task, std::span<const Reached> ranks);

 private:
  // Combines where some buffer is not mapped, or where the result has to be divided.
  Status combine(const ipc::Call& call, const Task& task, std::span<const Reached> ranks);
  // Combines `count` elements from element `done` of the task on, straight from all sources to all
  // destinations. All of them must be mapped.
  void combine_block(const ipc::Call& call, const Task& task, std::span<const Reached> ranks, uint64_t done,
                     uint64_t count);
  // Combines where every buffer is mapped and nothing is divided.
  Status combine_mapped(const ipc::Call& call, const Task& task, std::span<const Reached> ranks);
  // Copies from one rank to one or to all.
  Status copy(const ipc::Call& call, const Task& task, std::span<const Reached> ranks);
  // Reads from a rank's sendbuf, or writes to its recvbuf, through the kernel. `offset` is in bytes.
  Status read(const Reached& from, uint64_t offset, std::byte* to, size_t bytes) const;
  Status write(const Reached& to, uint64_t offset, const std::byte* from, size_t bytes) const;

  const NodeAccess& access_;
  // A block for each rank: of those whose memory is not mapped, a copy; in this rank's place, a result
  // that it does not need itself. Grows to the largest need and is kept.
  std::vector<std::byte> bounce_;
  // Kept from block to block, so that calls allocate nothing.
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

}  // namespace hdt::client
