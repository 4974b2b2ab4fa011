// layout_string.h: the layout of a replica as Megatron writes it (--pipeline-model-parallel-layout):
// "Et*3|(tt|)*29|tL". E is the embedding, t a transformer layer, L the head with its loss; "|" ends a virtual
// stage, "t*3" repeats a layer or a border, "(tt|)*29" a row of them. Commas mean nothing. Any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hdt::training {

// The layers of each virtual stage, in the order of the model. The first one may have none, with the
// embedding alone, and so may the last one. kInvalidArgument names the character at fault by its position,
// counted from 1, or the stage that holds nothing. So that a short text cannot take all memory, it has at
// most 1,000,000 layers and as many stages.
Result<std::vector<int>> parse_layout_string(std::string_view text);

// The text of it, short. `stage_layers` is what parse_layout_string() can return.
std::string layout_string(std::span<const int> stage_layers);

}  // namespace hdt::training
