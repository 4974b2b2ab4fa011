// layout_flags.h: the layout from flags, in the formats of Megatron and its mixed-vendor forks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/engine/layout.h"

namespace hdt::training {

// The values of the flags of the same names. A flag that was not given is empty.
struct LayoutFlags {
  int world_size = 1;
  int num_layers = 0;
  int tensor_model_parallel_size = 1;
  std::optional<int> pipeline_model_parallel_size;
  // --hetero-pipeline-stages n0 layers_0_0 layers_0_1 ... n1 layers_1_0 ...: for each kind of device the
  // number of its stages, then their layers. One entry holds for every replica; otherwise there is one
  // entry for each replica.
  std::vector<std::vector<int>> hetero_pipeline_stages;
  // --num-virtual-stages-per-pipeline-rank: model chunks of every stage, one number for all replicas or one
  // for each entry of hetero_pipeline_stages. With it an entry has for each kind of device the number of its
  // stages, then the layers of each stage's chunks: those of stage 0, then those of stage 1, and so on.
  std::vector<int> virtual_stages_per_rank;
  // --num-layers-per-virtual-pipeline-stage: the same from the layers of each chunk, for an even split.
  std::optional<int> layers_per_virtual_stage;
  // --pipeline-model-parallel-layout, in the place of the three flags before: one split for every replica
  // (layout_string.h). It has a stage for each of --pipeline-model-parallel-size, or a multiple of that many,
  // which are the chunks. Without that flag no stage has several chunks.
  std::optional<std::string> pipeline_model_parallel_layout;
  // RankOrder::kTpPpDp instead of kTpDpPp.
  bool use_tp_pp_dp_mapping = false;
  std::optional<int> micro_batch_size;
  // n0 value0 n1 value1 ...: the first n0 replicas have value0, the next n1 value1, and so on.
  std::vector<int> micro_batch_size_per_dp;
  std::vector<int> num_micro_batches_per_dp;
  std::optional<int> global_batch_size;
};

// Checks every constraint and makes the layout. kInvalidArgument names the constraint that is broken and
// by how much.
Result<Layout> make_layout(const LayoutFlags& flags);

}  // namespace hdt::training
