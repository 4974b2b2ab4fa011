// layout_flags.cc: parses and checks the flags of the parallel layout. Each error names the flag, what
// was expected and by how much the values miss it, because these flags are long rows of numbers in which
// a slip is hard to see.
#include "training/engine/layout_flags.h"

#include <fmt/format.h>

#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <utility>

#include "training/engine/layout_string.h"

namespace hdt::training {
namespace {

// Keeps sums and products of values far from overflow in 64 bits.
constexpr int kGreatestValue = 1'000'000;

Status broken(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

// "2 too many" or "2 short".
std::string difference(int64_t found, int64_t expected) {
  return found > expected ? fmt::format("{} too many", found - expected)
                          : fmt::format("{} short", expected - found);
}

// kInvalidArgument unless the value is from 1 to kGreatestValue.
Status check_range(const std::string& flag, int64_t value) {
  if (value >= 1 && value <= kGreatestValue) return Status::ok();
  return broken(fmt::format("{}: {} is out of range, expected 1 to {}", flag, value, kGreatestValue));
}

// The layers of the stages of a replica.
struct Split {
  std::vector<int> layers;  // by virtual stage
  int chunks = 1;

  int stages() const { return static_cast<int>(layers.size()) / chunks; }
};

// Turns "n0 layers_0_0 layers_0_1 ... n1 ..." into the layers of each virtual stage. Kinds of devices are not
// kept: only the order of the stages counts. A stage has `chunks` numbers, one after the other.
Result<Split> parse_stages(const std::vector<int>& values, const std::string& flag, int num_layers,
                           int chunks) {
  std::vector<int> layers;
  // A group of values for each kind of device: how many stages follow, then so many numbers of layers.
  size_t at = 0;
  while (at < values.size()) {
    HDT_RETURN_IF_ERROR(check_range(flag + ": a number of stages", values[at]));
    const size_t count = static_cast<size_t>(values[at++]) * static_cast<size_t>(chunks);
    if (count > values.size() - at) {
      return broken(fmt::format("{}: {} stages{} are announced at value {}, but {} layer counts follow: {}",
                                flag, count / static_cast<size_t>(chunks),
                                chunks == 1 ? "" : fmt::format(" of {} chunks", chunks), at,
                                values.size() - at, difference(values.size() - at, count)));
    }
    for (size_t i = 0; i < count; ++i, ++at) {
      if (values[at] != 0) HDT_RETURN_IF_ERROR(check_range(flag + ": the layers of a stage", values[at]));
      layers.push_back(values[at]);
    }
  }
  int64_t sum = 0;
  for (int count : layers) sum += count;
  if (sum != num_layers) {
    return broken(fmt::format("{}: the layers of the stages sum to {}, --num-layers is {}: {}", flag, sum,
                              num_layers, difference(sum, num_layers)));
  }
  // From stage by stage to the order of the model: the first chunks of all stages come first.
  Split split{{}, chunks};
  for (size_t chunk = 0; chunk < static_cast<size_t>(chunks); ++chunk) {
    for (size_t i = chunk; i < layers.size(); i += static_cast<size_t>(chunks))
      split.layers.push_back(layers[i]);
  }
  for (size_t stage = 1; stage + 1 < split.layers.size(); ++stage) {
    if (split.layers[stage] == 0) {
      return broken(
          fmt::format("{}: stage {} of {} of the model has 0 layers, expected at least 1: only the "
                      "first and the last one may be without, as they have the embedding and the head",
                      flag, stage + 1, split.layers.size()));
    }
  }
  return split;
}

// The chunks of the replica whose split has that index among `splits`.
int chunks_of(const LayoutFlags& flags, size_t index) {
  const std::vector<int>& chunks = flags.virtual_stages_per_rank;
  if (chunks.empty()) return 1;
  return chunks.size() == 1 ? chunks.front() : chunks[index];
}

// The flags of model chunks by themselves.
Status check_chunk_flags(const LayoutFlags& flags) {
  const size_t given = flags.hetero_pipeline_stages.size();
  for (const int chunks : flags.virtual_stages_per_rank)
    HDT_RETURN_IF_ERROR(check_range("--num-virtual-stages-per-pipeline-rank", chunks));
  if (flags.virtual_stages_per_rank.size() > 1 && flags.virtual_stages_per_rank.size() != given) {
    return broken(fmt::format(
        "--num-virtual-stages-per-pipeline-rank: {} numbers, expected one for all replicas, or one "
        "for each --hetero-pipeline-stages, which is given {} times",
        flags.virtual_stages_per_rank.size(), given));
  }
  if (!flags.layers_per_virtual_stage) return Status::ok();
  HDT_RETURN_IF_ERROR(
      check_range("--num-layers-per-virtual-pipeline-stage", *flags.layers_per_virtual_stage));
  if (given > 0 || !flags.virtual_stages_per_rank.empty()) {
    return broken(
        fmt::format("--num-layers-per-virtual-pipeline-stage and {} exclude each other: give one of them",
                    given > 0 ? "--hetero-pipeline-stages" : "--num-virtual-stages-per-pipeline-rank"));
  }
  return Status::ok();
}

// An even split over stages and chunks.
Result<Split> even_split(const LayoutFlags& flags) {
  const int64_t stages = flags.pipeline_model_parallel_size.value_or(1);
  if (flags.num_layers % stages != 0) {
    return broken(
        fmt::format("--num-layers {} is not divisible by --pipeline-model-parallel-size {}: {} left over; "
                    "name the split with "
                    "--hetero-pipeline-stages",
                    flags.num_layers, stages, flags.num_layers % stages));
  }
  const int64_t of_stage = flags.num_layers / stages;
  const int64_t divisor = flags.layers_per_virtual_stage.value_or(chunks_of(flags, 0));
  if (of_stage % divisor != 0) {
    return broken(
        fmt::format("{} {}: a stage has {} layers, which is no multiple: {} left over; name the split with "
                    "--hetero-pipeline-stages",
                    flags.layers_per_virtual_stage ? "--num-layers-per-virtual-pipeline-stage"
                                                   : "--num-virtual-stages-per-pipeline-rank",
                    divisor, of_stage, of_stage % divisor));
  }
  const int64_t chunks = flags.layers_per_virtual_stage ? of_stage / divisor : divisor;
  return Split{std::vector<int>(static_cast<size_t>(stages * chunks), static_cast<int>(of_stage / chunks)),
               static_cast<int>(chunks)};
}

// The split of --pipeline-model-parallel-layout.
Result<Split> split_of_layout(const LayoutFlags& flags) {
  constexpr const char* kFlag = "--pipeline-model-parallel-layout";
  for (const auto& [name, given] :
       {std::pair{"--hetero-pipeline-stages", !flags.hetero_pipeline_stages.empty()},
        std::pair{"--num-virtual-stages-per-pipeline-rank", !flags.virtual_stages_per_rank.empty()},
        std::pair{"--num-layers-per-virtual-pipeline-stage", flags.layers_per_virtual_stage.has_value()}}) {
    if (given) return broken(fmt::format("{} and {} exclude each other: give one of them", kFlag, name));
  }
  Result<std::vector<int>> layers = parse_layout_string(*flags.pipeline_model_parallel_layout);
  if (!layers.is_ok()) return broken(fmt::format("{}: {}", kFlag, layers.status().message()));
  const auto virtual_stages = static_cast<int>(layers.value().size());
  const int stages = flags.pipeline_model_parallel_size.value_or(virtual_stages);
  if (virtual_stages % stages != 0) {
    return broken(
        fmt::format("{}: {} stages, which is no multiple of --pipeline-model-parallel-size {}: {} left over",
                    kFlag, virtual_stages, stages, virtual_stages % stages));
  }
  const int64_t sum = std::accumulate(layers.value().begin(), layers.value().end(), int64_t{0});
  if (sum != flags.num_layers) {
    return broken(fmt::format("{}: {} layers, --num-layers is {}: {}", kFlag, sum, flags.num_layers,
                              difference(sum, flags.num_layers)));
  }
  return Split{layers.take(), virtual_stages / stages};
}

// The layers of each stage of each replica. Without --hetero-pipeline-stages the layers are split
// evenly. One split holds for as many replicas as the ranks make; several are one for each replica.
Result<std::vector<Split>> parse_splits(const LayoutFlags& flags) {
  HDT_RETURN_IF_ERROR(check_chunk_flags(flags));
  std::vector<Split> splits;
  // 1. No split is given for a replica: that of the layout, or an even one.
  if (flags.hetero_pipeline_stages.empty() || flags.pipeline_model_parallel_layout) {
    Result<Split> common = flags.pipeline_model_parallel_layout ? split_of_layout(flags) : even_split(flags);
    if (!common.is_ok()) return common.status();
    splits.push_back(common.take());
  }
  // 2. Each split that was given.
  const size_t given = flags.hetero_pipeline_stages.size();
  for (size_t i = 0; i < given; ++i) {
    const std::string flag =
        given == 1 ? "--hetero-pipeline-stages" : fmt::format("--hetero-pipeline-stages of replica {}", i);
    Result<Split> split =
        parse_stages(flags.hetero_pipeline_stages[i], flag, flags.num_layers, chunks_of(flags, i));
    if (!split.is_ok()) return split.status();
    const int64_t stages = split.value().stages();
    if (flags.pipeline_model_parallel_size && stages != *flags.pipeline_model_parallel_size) {
      return broken(fmt::format("{}: {} stages, --pipeline-model-parallel-size is {}: {}", flag, stages,
                                *flags.pipeline_model_parallel_size,
                                difference(stages, *flags.pipeline_model_parallel_size)));
    }
    splits.push_back(split.take());
  }
  // 3. One split for all replicas: the ranks must divide into replicas of that many stages.
  if (splits.size() == 1) {
    const int stages = splits.front().stages();
    if (flags.world_size % stages != 0) {
      return broken(fmt::format("{} ranks do not divide into replicas of {} stages: {} left over",
                                flags.world_size, stages, flags.world_size % stages));
    }
    const Split only = splits.front();
    splits.assign(flags.world_size / stages, only);
    return splits;
  }
  // 4. One split for each replica: together they must use all ranks.
  int64_t ranks = 0;
  for (const Split& split : splits) ranks += split.stages();
  if (ranks != flags.world_size) {
    return broken(
        fmt::format("--hetero-pipeline-stages, given for {} replicas, makes {} stages in all, but the job "
                    "has {} ranks: {}",
                    splits.size(), ranks, flags.world_size, difference(ranks, flags.world_size)));
  }
  return splits;
}

// Turns "n0 value0 n1 value1 ..." into one value for each replica. The n must sum to the number of replicas.
Result<std::vector<int>> parse_per_replica(const std::vector<int>& values, const std::string& flag,
                                           int replicas) {
  if (values.size() % 2 != 0) {
    return broken(
        fmt::format("{}: expected pairs of a number of replicas and a value, found {} numbers: 1 short", flag,
                    values.size()));
  }
  int64_t sum = 0;
  for (size_t i = 0; i < values.size(); i += 2) {
    HDT_RETURN_IF_ERROR(check_range(flag + ": a number of replicas", values[i]));
    HDT_RETURN_IF_ERROR(check_range(flag + ": a value", values[i + 1]));
    sum += values[i];
  }
  if (sum != replicas) {
    return broken(fmt::format("{}: the numbers of replicas sum to {}, the layout has {}: {}", flag, sum,
                              replicas, difference(sum, replicas)));
  }
  std::vector<int> result;
  for (size_t i = 0; i < values.size(); i += 2) result.insert(result.end(), values[i], values[i + 1]);
  return result;
}

// One size for all replicas, or one for each; one of the two flags must be given.
Status set_micro_batch_sizes(const LayoutFlags& flags, std::vector<Replica>& replicas) {
  if (flags.micro_batch_size_per_dp.empty()) {
    if (!flags.micro_batch_size) {
      return broken("--micro-batch-size (or --micro-batch-size-per-dp) is required");
    }
    for (Replica& replica : replicas) replica.micro_batch_size = *flags.micro_batch_size;
    return Status::ok();
  }
  if (flags.micro_batch_size) {
    return broken("--micro-batch-size and --micro-batch-size-per-dp exclude each other: give one of them");
  }
  Result<std::vector<int>> sizes = parse_per_replica(
      flags.micro_batch_size_per_dp, "--micro-batch-size-per-dp", static_cast<int>(replicas.size()));
  if (!sizes.is_ok()) return sizes.status();
  for (size_t i = 0; i < replicas.size(); ++i) replicas[i].micro_batch_size = sizes.value()[i];
  return Status::ok();
}

// Micro-batches of each replica: given, or as many for all as --global-batch-size allows. Without that
// flag a step has one micro-batch in each replica.
Status set_micro_batch_counts(const LayoutFlags& flags, std::vector<Replica>& replicas) {
  // Given: --global-batch-size is then only checked.
  if (!flags.num_micro_batches_per_dp.empty()) {
    Result<std::vector<int>> counts = parse_per_replica(
        flags.num_micro_batches_per_dp, "--num-micro-batches-per-dp", static_cast<int>(replicas.size()));
    if (!counts.is_ok()) return counts.status();
    int64_t samples = 0;
    for (size_t i = 0; i < replicas.size(); ++i) {
      replicas[i].num_micro_batches = counts.value()[i];
      samples += replicas[i].samples();
    }
    if (flags.global_batch_size && samples != *flags.global_batch_size) {
      return broken(
          fmt::format("--global-batch-size is {}, but the micro-batches of all replicas make {} samples: {}",
                      *flags.global_batch_size, samples, difference(samples, *flags.global_batch_size)));
    }
    return Status::ok();
  }
  // Samples of one micro-batch of every replica together.
  int64_t together = 0;
  for (const Replica& replica : replicas) together += replica.micro_batch_size;
  const int64_t samples = flags.global_batch_size.value_or(static_cast<int>(together));
  if (samples % together != 0) {
    return broken(
        fmt::format("--global-batch-size {} is not divisible by the sum of the micro-batch sizes of all "
                    "replicas, {}: {} left over",
                    samples, together, samples % together));
  }
  for (Replica& replica : replicas) replica.num_micro_batches = static_cast<int>(samples / together);
  return Status::ok();
}

}  // namespace

// Steps: ranges of single values, the split of layers, sizes, counts.
Result<Layout> make_layout(const LayoutFlags& flags) {
  HDT_RETURN_IF_ERROR(check_range("the number of ranks", flags.world_size));
  HDT_RETURN_IF_ERROR(check_range("--num-layers", flags.num_layers));
  if (flags.tensor_model_parallel_size != 1) {
    return broken(
        fmt::format("--tensor-model-parallel-size {}: tensor parallelism is not supported, expected 1",
                    flags.tensor_model_parallel_size));
  }
  if (flags.pipeline_model_parallel_size) {
    HDT_RETURN_IF_ERROR(check_range("--pipeline-model-parallel-size", *flags.pipeline_model_parallel_size));
  }
  if (flags.micro_batch_size) HDT_RETURN_IF_ERROR(check_range("--micro-batch-size", *flags.micro_batch_size));
  if (flags.global_batch_size)
    HDT_RETURN_IF_ERROR(check_range("--global-batch-size", *flags.global_batch_size));

  Result<std::vector<Split>> splits = parse_splits(flags);
  if (!splits.is_ok()) return splits.status();
  std::vector<Replica> replicas;
  for (Split& split : splits.value()) {
    Replica replica;
    replica.stage_layers = std::move(split.layers);
    replica.chunks = split.chunks;
    replicas.push_back(std::move(replica));
  }
  HDT_RETURN_IF_ERROR(set_micro_batch_sizes(flags, replicas));
  HDT_RETURN_IF_ERROR(set_micro_batch_counts(flags, replicas));
  return Layout(flags.num_layers, std::move(replicas),
                flags.use_tp_pp_dp_mapping ? RankOrder::kTpPpDp : RankOrder::kTpDpPp);
}

}  // namespace hdt::training
