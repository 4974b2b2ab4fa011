// introduction.cc: prints the facts of a run.
#include "tools/hdt-train/introduction.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <vector>

#include "tools/hdt-train/plan_layout.h"
#include "training/data/progress_line.h"
#include "training/torch/tensor_names.h"

namespace hdt::tools {
namespace {

using training::format_grouped;

// The numbers of recomputed_layers() or of recomputed_attentions(), stage by stage; "" if there are none.
template <typename Count>
std::string describe_recomputation(const TrainFlags& flags, const training::Layout& layout, Count count) {
  std::string text;
  bool any = false;
  for (int i = 0; i < layout.num_replicas(); ++i) {
    std::vector<int> counts;
    const int stages = layout.replica(i).stages();
    for (int part = 0; part < layout.replica(i).virtual_stages(); ++part) {
      counts.push_back(count(flags, layout, {i, part % stages, part / stages}));
      any = any || counts.back() > 0;
    }
    text += fmt::format("{}replica {}: {}", i == 0 ? "" : "; ", i, fmt::join(counts, " + "));
  }
  return any ? text : "";
}

}  // namespace

std::string describe(const training::Layout& layout) {
  std::string text;
  for (int i = 0; i < layout.num_replicas(); ++i) {
    const training::Replica& replica = layout.replica(i);
    text += fmt::format("{}replica {}: {} layers{}, {} x {} samples", i == 0 ? "" : "; ", i,
                        fmt::join(replica.stage_layers, " + "),
                        replica.chunks == 1 ? ""
                                            : fmt::format(" on {} stages with {} chunks each",
                                                          replica.stages(), replica.chunks),
                        replica.num_micro_batches, replica.micro_batch_size);
  }
  return text;
}

// Flushed, as the first step may take long.
void introduce(const TrainFlags& flags, const TokenInput& input, const training::Layout& layout) {
  const auto& shape = flags.shape;
  fmt::print("model: {} parameters, {} layers, hidden {}, sequence {}, vocabulary {}\n",
             format_grouped(training::parameter_count(shape)), shape.num_layers, shape.hidden_size,
             shape.sequence_length, shape.vocab_size);
  fmt::print("types: parameters and activations {}, gradients {}, the optimizer's states {}\n",
             training::number_type_name(flags.type), training::number_type_name(flags.trainer.gradients),
             training::number_type_name(training::state_type_of(flags.type)));
  // The entropy is that of a sample where the data is large.
  for (const TokenSet& set : input.sets) {
    fmt::print("data: {} tokens from {}, unigram entropy {:.4f} nats per token{}\n",
               format_grouped(static_cast<int64_t>(set.statistics.tokens)),
               set.flag.substr(set.flag.find(' ') + 1), set.statistics.unigram_entropy,
               input.sets.size() == 1 ? "" : fmt::format(", weight {}", set.weight));
  }
  fmt::print("layout: {} ranks; {}; {} tokens a step\n", layout.world_size(), describe(layout),
             format_grouped(layout.global_batch_size() * shape.sequence_length));
  if (const std::string recomputed = describe_recomputation(flags, layout, recomputed_layers);
      !recomputed.empty())
    fmt::print("recomputed layers: {}\n", recomputed);
  const std::string attention = describe_recomputation(flags, layout, recomputed_attentions);
  if (!attention.empty()) fmt::print("recomputed attention of layers: {}\n", attention);
  if (flags.dropout.attention > 0 || flags.dropout.hidden > 0)
    fmt::print("dropout: attention {}, hidden {}\n", flags.dropout.attention, flags.dropout.hidden);
  if (!flags.without_effect.empty())
    fmt::print("without effect: {}\n", fmt::join(flags.without_effect, "; "));
  std::fflush(stdout);
}

}  // namespace hdt::tools
