// local_mover.h: moves and combines elements between the buffers of a node's ranks: through mappings where
// there are any, else through the kernel (process_vm_readv and process_vm_writev), block by block, each of a
// process that is proved (reach.h).
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

// One rank's buffers of a call, as this process reaches them.
struct Reached {
  std::byte* send = nullptr;  // mapped here; null: at send_address of `process`
  std::byte* recv = nullptr;
  uint64_t send_address = 0;
  uint64_t recv_address = 0;
  Process process;
  bool in_place = false;  // sendbuf and recvbuf are the same memory
};

class LocalMover {
 public:
  explicit LocalMover(const NodeAccess& access) : access_(access) {}

  // In other processes' buffers: between blocks it looks whether the group has failed, and ends early if so;
  // `touching` is up during blocks. A process that cannot be reached (any more), or is not the rank's:
  // kSystem, with its pid.
  Status run(const session::Call& call, const Task& task, std::span<const Reached> ranks);
  // From mapped contributions in the group's own memory to this rank's recvbuf: nobody's buffers are touched.
  void run_own(const session::Call& call, const Task& task, std::span<const Reached> ranks);

 private:
  Status combine(const session::Call& call, const Task& task, std::span<const Reached> ranks);
  void combine_block(const session::Call& call, const Task& task, std::span<const Reached> ranks,
                     uint64_t done, uint64_t count);
  Status combine_mapped(const session::Call& call, const Task& task, std::span<const Reached> ranks);
  Status copy(const session::Call& call, const Task& task, std::span<const Reached> ranks);
  Status read(const Reached& from, uint64_t offset, std::byte* to, size_t bytes) const;
  Status write(const Reached& to, uint64_t offset, const std::byte* from, size_t bytes) const;

  const NodeAccess& access_;
  // A block for each rank: of those whose memory is not mapped, and in this rank's place a result that it
  // does not want itself.
  std::vector<std::byte> bounce_;
  std::vector<const void*> sources_;
  std::vector<void*> destinations_;
};

}  // namespace hdt::client
