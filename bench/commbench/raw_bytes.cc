// raw_bytes.cc: how many bytes the bound moves. The formulas are those of --help. Between nodes they
// count what a bandwidth-optimal ring sends; in one node they count memory traffic, read and written
// bytes, divided by 2, since a copy of a byte reads and writes it.
#include "bench/commbench/raw_communicator.h"

namespace hdt::bench {

size_t raw_wire_bytes(Collective what, size_t full_bytes, int nodes, int ranks) {
  const auto n = static_cast<size_t>(nodes);
  const auto per_node = static_cast<size_t>(ranks / nodes);
  switch (what) {
    case Collective::kAllReduce:
      return 2 * (n - 1) * full_bytes / n / per_node;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return (n - 1) * full_bytes / n / per_node;
    case Collective::kSendRecv:
      return full_bytes / per_node;
    default:
      return 0;
  }
}

size_t raw_copy_bytes(Collective what, size_t full_bytes, int ranks) {
  const auto n = static_cast<size_t>(ranks);
  switch (what) {
    case Collective::kReduceScatter:
    case Collective::kReduce:
      // Every rank reads its whole contribution, and writes an n-th of the result.
      return (n + 1) * full_bytes / (2 * n);
    case Collective::kGather:
    case Collective::kScatter:
      // All ranks together read and write everything once.
      return full_bytes / n;
    case Collective::kBarrier:
      return 0;
    default:
      return full_bytes;
  }
}

}  // namespace hdt::bench
