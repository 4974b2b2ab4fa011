// elements.h: values of every type as doubles, and what a collective must give, computed the plain way.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "hdt/hdt.h"
#include "tests/integration/communicator/kept_bytes.h"

namespace hdt::testing {

enum class Operation { kAllReduce, kReduce, kReduceScatter, kAllGather, kBroadcast };

// One call of a test, the same on every rank.
struct Example {
  Operation operation;
  hdtDataType_t type;
  hdtRedOp_t op;
  bool in_place;
  size_t count;
  int root;
  unsigned salt;        // makes the data of successive calls different
  bool shared = false;  // buffers are memory of hdtMemAlloc
  bool mixed = false;   // but the sendbuf is of the other kind

  bool reduces() const { return operation < Operation::kAllGather; }
  size_t send_count(int ranks) const {
    return operation == Operation::kReduceScatter ? count * size_t(ranks) : count;
  }
  size_t receive_count(int ranks) const {
    return operation == Operation::kAllGather ? count * size_t(ranks) : count;
  }
  std::string name() const;
};

// False for bitwise reductions of floating-point numbers, which HDT refuses.
bool can_reduce(hdtDataType_t type, hdtRedOp_t op);

// The contribution of each of `ranks`, and the results that they must get, are computed without a sanitizer
// (CMakeLists.txt): only private memory is touched, and most of the tests' time would go there. Users'
// buffers are filled and read by memcpy() elsewhere. All that `rank` contributes: small whole numbers, so
// that only averages round.
KeptBytes contributions(const Example& example, int rank, int ranks);

// Elements of a recvbuf that differ from what is expected by more than `relative` of it.
struct Difference {
  size_t wrong = 0;
  size_t first = 0;
  double want = 0, got = 0;  // of the first
};
Difference compare(const Example& example, int ranks, int rank, std::span<const std::byte> received,
                   double relative);

// Relative error of one rounding.
double precision(hdtDataType_t type);

}  // namespace hdt::testing
