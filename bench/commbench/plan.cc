// plan.cc: counts and bandwidth factors of each collective.
#include "bench/commbench/plan.h"

namespace hdt::bench {

Shape shape_of(const Row& row, int ranks) {
  const size_t n = static_cast<size_t>(ranks);
  const size_t element = element_bytes(row.type);
  // Sizes that are no multiple of an element are cut down.
  const size_t whole = row.asked_bytes / element;
  Shape shape;
  switch (row.what) {
    case Collective::kReduceScatter:
    case Collective::kScatter:
      shape.count = whole / n;
      shape.send_elements = shape.count * n;
      shape.recv_elements = shape.count;
      break;
    case Collective::kAllToAll:
      shape.count = whole / n;
      shape.send_elements = shape.count * n;
      shape.recv_elements = shape.count * n;
      break;
    case Collective::kAllGather:
    case Collective::kGather:
      shape.count = whole / n;
      shape.send_elements = shape.count;
      shape.recv_elements = shape.count * n;
      break;
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSendRecv:
      shape.count = whole;
      shape.send_elements = whole;
      shape.recv_elements = whole;
      break;
    case Collective::kBarrier:
      break;
  }
  // The full buffer is the larger one.
  const size_t full = shape.send_elements > shape.recv_elements ? shape.send_elements : shape.recv_elements;
  shape.bytes = full * element;
  return shape;
}

bool has_in_place(Collective what) {
  switch (what) {
    case Collective::kAllReduce:
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kBroadcast:
    case Collective::kReduce:
      return true;
    default:
      return false;
  }
}

// For n ranks. An allreduce must send and receive 2 (n - 1) / n of the buffer over each rank's link; a
// collective with a part for each rank, all parts but the own one; a broadcast, reduce or sendrecv, all
// of it.
double bus_factor(Collective what, int ranks) {
  const double n = ranks;
  switch (what) {
    case Collective::kAllReduce:
      return 2 * (n - 1) / n;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
    case Collective::kGather:
    case Collective::kScatter:
      return (n - 1) / n;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kSendRecv:
      return 1;
    case Collective::kBarrier:
      return 0;
  }
  return 0;
}

}  // namespace hdt::bench
