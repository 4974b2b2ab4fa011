// work.h: a rank's part of random operations, each result checked to the last bit, until somebody makes the
// file `stop`.
#pragma once

#include <cstdint>
#include <string>

#include "hdt/hdt.h"

namespace hdt::testing {

// Ranks of a group draw the same operations from the same seed. `in_place`: buffers are memory of
// hdtMemAlloc, which daemons use where they can. `rounds`: how many, 0: until there is `stop`. `extra` says
// after success how many rounds there were and a digest of the sums of floating point, whose bits depend on
// the order of additions; else what was wrong.
hdtResult_t work(hdtComm_t comm, uint64_t seed, const std::string& stop, bool in_place, uint64_t rounds,
                 std::string& extra);

}  // namespace hdt::testing
