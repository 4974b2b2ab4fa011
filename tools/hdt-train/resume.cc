// resume.cc: compares by names, so that a message has the flag or the tensor that is wrong.
#include "tools/hdt-train/resume.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "tools/hdt-train/document_flags.h"
#include "training/torch/tensor_names.h"

namespace hdt::tools {
namespace {

using training::Checkpoint;
using training::TensorInfo;

constexpr const char* kData = "data";   // the one key that is no flag
constexpr size_t kMostDifferences = 4;  // in a message about tensors

// Every difference between the two, or "". A key that one of them lacks differs.
std::string differing_keys(const std::map<std::string, std::string>& theirs,
                           const std::map<std::string, std::string>& ours) {
  std::map<std::string, std::string> all = ours;
  all.insert(theirs.begin(), theirs.end());
  const auto value_in = [](const auto& facts, const std::string& key) {
    const auto found = facts.find(key);
    return found == facts.end() ? std::string("is not given") : found->second;
  };
  std::vector<std::string> differences;
  for (const auto& [key, ignored] : all) {
    const std::string there = value_in(theirs, key);
    const std::string here = value_in(ours, key);
    if (there == here) continue;
    differences.push_back(
        fmt::format("{} {} there and {} here", key == kData ? "the data: " : "--" + key, there, here));
  }
  return fmt::format("{}", fmt::join(differences, "; "));
}

// Every tensor and its two moments must be there with this shape, and nothing else.
std::string differing_tensors(const Checkpoint& checkpoint, const std::vector<TensorInfo>& model) {
  std::map<std::string, training::Shape> expected;
  for (const TensorInfo& tensor : model) {
    std::vector<training::ExpectedTensor> parts;
    training::add_expected(tensor.name, tensor.elements(), parts);
    for (const training::ExpectedTensor& part : parts)
      expected[part.name].assign(tensor.shape.begin(), tensor.shape.end());
  }
  std::vector<std::string> differences;
  for (const auto& [name, shape] : expected) {
    const auto found = checkpoint.tensors().find(name);
    if (found == checkpoint.tensors().end()) {
      differences.push_back(fmt::format("{} is missing", name));
    } else if (found->second.shape != shape || (found->second.dtype != training::Dtype::kF32 &&
                                                found->second.dtype != training::Dtype::kF64)) {
      differences.push_back(fmt::format("{} is {} {} there and F32 or F64 {} here", name,
                                        training::dtype_name(found->second.dtype), found->second.shape,
                                        shape));
    }
  }
  for (const auto& [name, record] : checkpoint.tensors()) {
    if (!expected.contains(name)) differences.push_back(fmt::format("{} is not one of this model", name));
  }
  const size_t shown = std::min(differences.size(), kMostDifferences);
  return fmt::format(
      "{}{}", fmt::join(differences.begin(), differences.begin() + shown, "; "),
      shown == differences.size() ? "" : fmt::format("; and {} more", differences.size() - shown));
}

}  // namespace

Result<std::optional<Checkpoint>> open_resume(const TrainFlags& flags, int rank) {
  if (flags.load.empty()) return std::optional<Checkpoint>();
  Result<training::NewestCheckpoint> newest = training::open_newest(flags.load);
  if (!newest.is_ok()) return Status(newest.status().code(), "--load: " + newest.status().message());
  if (rank == 0 && !newest.value().warning.empty())
    fmt::print(stderr, "hdt-train: warning: --load: {}\n", newest.value().warning);
  if (newest.value().checkpoint) return newest.take().checkpoint;
  if (flags.exit_on_missing_checkpoint) {
    return Status(Code::kInvalidArgument,
                  fmt::format("--load {}: there is no checkpoint, and --exit-on-missing-checkpoint is given",
                              flags.load));
  }
  if (rank == 0) {
    fmt::print(stderr, "hdt-train: warning: --load {}: there is no checkpoint; training starts anew\n",
               flags.load);
  }
  return std::optional<Checkpoint>();
}

std::map<std::string, std::string> run_fingerprint(const TrainFlags& flags, const TokenInput& input,
                                                   const training::Layout& layout) {
  std::map<std::string, std::string> facts = training::model_facts(flags.shape);
  // Facts of a model without the features that came later are left out, so that checkpoints that do not know
  // of them go on.
  training::ModelShape plain;
  plain.num_layers = flags.shape.num_layers;
  plain.hidden_size = flags.shape.hidden_size;
  plain.num_attention_heads = flags.shape.num_attention_heads;
  plain.sequence_length = flags.shape.sequence_length;
  for (const auto& [key, value] : training::model_facts(plain)) {
    const bool kept = key == "num-layers" || key == "hidden-size" || key == "num-attention-heads";
    if (!kept && facts.at(key) == value) facts.erase(key);
  }
  facts.insert({{"seq-length", std::to_string(flags.shape.sequence_length)},
                {"global-batch-size", std::to_string(layout.global_batch_size())},
                {"seed", std::to_string(flags.trainer.seed)},
                {kData, input.identity() + document_flags(flags)}});
  const training::DropoutRates& dropout = flags.dropout;
  if (dropout.attention > 0) facts.emplace("attention-dropout", fmt::format("{}", dropout.attention));
  if (dropout.hidden > 0) facts.emplace("hidden-dropout", fmt::format("{}", dropout.hidden));
  return facts;
}

std::map<std::string, std::string> run_settings(const TrainFlags& flags) {
  const training::LearningRateOptions& rate = flags.trainer.learning_rate;
  const training::AdamWOptions& adamw = flags.trainer.adamw;
  const auto text = [](auto value) { return fmt::format("{}", value); };
  return {{"lr", text(rate.peak)},
          {"min-lr", text(rate.minimum)},
          {"lr-warmup-iters", text(rate.warmup_steps)},
          {"lr-decay-iters", text(rate.total_steps)},
          {"lr-decay-style", training::learning_rate_decay_name(rate.decay)},
          {"weight-decay", text(adamw.weight_decay)},
          {"adam-beta1", text(adamw.beta1)},
          {"adam-beta2", text(adamw.beta2)},
          {"adam-eps", text(adamw.epsilon)},
          {"clip-grad", text(flags.trainer.clip_gradient_norm)}};
}

std::vector<std::string> changed_settings(const training::TrainingState& state, const TrainFlags& flags) {
  std::vector<std::string> changes;
  for (const auto& [key, here] : run_settings(flags)) {
    const auto there = state.settings.find(key);
    if (there == state.settings.end() || there->second == here) continue;
    changes.push_back(fmt::format("--{} {}: the checkpoint's run had {}; from step {} on it is {}", key, here,
                                  there->second, state.step + 1, here));
  }
  return changes;
}

Status check_resume(const Checkpoint& checkpoint, const TrainFlags& flags, const TokenInput& input,
                    const training::Layout& layout) {
  const auto refuse = [&](const std::string& differences) {
    return Status(Code::kMismatch, fmt::format("--load {}: that is a checkpoint of another run: {}",
                                               checkpoint.folder(), differences));
  };
  const training::TrainingState& state = checkpoint.state();
  const std::string keys = differing_keys(state.fingerprint, run_fingerprint(flags, input, layout));
  if (!keys.empty()) return refuse(keys);
  const std::string tensors = differing_tensors(checkpoint, training::model_tensors(flags.shape));
  if (!tensors.empty()) return refuse(tensors);
  // The samples of a step follow from its number, the batch and the seed.
  if (state.consumed_samples != state.step * layout.global_batch_size())
    return refuse(fmt::format("{} samples were consumed in {} steps of {}", state.consumed_samples,
                              state.step, layout.global_batch_size()));
  return Status::ok();
}

training::TrainedTensor trained_tensor(const training::TensorState& tensor) {
  const std::vector<int64_t>& shape = tensor.info->shape;
  return {tensor.info->name, training::Shape(shape.begin(), shape.end()),
          tensor.master,     tensor.first,
          tensor.exp_avg,    tensor.exp_avg_sq};
}

Status load_tensors(Checkpoint& checkpoint, const training::Optimizer& optimizer) {
  for (const training::TensorState& tensor : optimizer.tensors()) {
    const training::TypedMemory parameters =
        training::plain_memory(tensor.master.type(), tensor.parameters.size());
    training::TrainedTensor read = trained_tensor(tensor);
    read.parameters = parameters.span();
    HDT_RETURN_IF_ERROR(training::read_trained(checkpoint, read));
    training::set_parameters(tensor, parameters.span());
  }
  return Status::ok();
}

}  // namespace hdt::tools
