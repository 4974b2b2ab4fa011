// agreement.h: what ranks let each other know before, between and after steps: whether all may begin, who
// still writes, and texts for rank 0 or from it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hdt/hdt.hpp"

namespace hdt::tools {

// Each rank says how its preparation has ended. Ok if all ranks are ready. A rank that is not ready gets
// `mine` back; the others get kAborted with the number of such a rank, and end instead of waiting for
// what will not come. All ranks of `world` must call it.
Status all_ready(const Status& mine, Communicator& world);

// Whether any rank says yes. All ranks of `world` must call it.
Result<bool> any_rank(bool mine, Communicator& world);

// The texts of all ranks, by rank; on rank 0 only. All ranks of `world` must call it.
Result<std::vector<std::string>> gather_texts(std::string_view mine, Communicator& world);
// Rank 0's text, on every rank. All ranks of `world` must call it.
Result<std::string> text_of_rank_0(std::string_view mine, Communicator& world);

}  // namespace hdt::tools
