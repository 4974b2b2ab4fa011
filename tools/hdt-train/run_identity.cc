// run_identity.cc: compares a hash of everything that must agree, one topic at a time, so that the
// message can name the topic.
#include "tools/hdt-train/run_identity.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>

#include "tools/hdt-train/document_flags.h"

namespace hdt::tools {
namespace {

// FNV-1a. The upper 52 bits are taken, which a double holds exactly, because the messenger reduces
// doubles.
double hash(const std::string& text) {
  uint64_t value = 0xCBF29CE484222325ULL;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return static_cast<double>(value >> 12);
}

// The maximum of x and the maximum of -x over all ranks sum to zero if and only if all ranks have the
// same x. One reduction answers both.
Status check_same(const std::string& mine, const std::string& what, training::Messenger& messenger) {
  std::array<double, 2> greatest = {hash(mine), -hash(mine)};
  HDT_RETURN_IF_ERROR(messenger.max_over_world(greatest));
  if (greatest[0] + greatest[1] == 0) return Status::ok();
  return {Code::kMismatch,
          fmt::format("ranks were started with different {}; this rank has: {}", what, mine)};
}

std::string loss_scale_text(const TrainFlags& flags) {
  if (!flags.trainer.loss_scale) return "";
  const training::LossScaleOptions& scale = *flags.trainer.loss_scale;
  if (!scale.is_dynamic()) return fmt::format(", loss scale {}", scale.constant);
  return fmt::format(", loss scale from {} down to {}, window {}, hysteresis {}", scale.initial,
                     scale.minimum, scale.window, scale.hysteresis);
}

}  // namespace

Status check_same_run(const TrainFlags& flags, const training::Layout& layout, const std::string& data,
                      const std::string& checkpoint, training::Messenger& messenger) {
  std::string model = fmt::format("seq-length {}", flags.shape.sequence_length);
  for (const auto& [key, value] : training::model_facts(flags.shape))
    model += fmt::format(", {} {}", key, value);
  HDT_RETURN_IF_ERROR(check_same(model, "models", messenger));
  HDT_RETURN_IF_ERROR(
      check_same(fmt::format("parameters {}, gradients {}{}", training::number_type_name(flags.type),
                             training::number_type_name(flags.trainer.gradients), loss_scale_text(flags)),
                 "types of numbers", messenger));
  HDT_RETURN_IF_ERROR(
      check_same(fmt::format("attention {}, hidden {}", flags.dropout.attention, flags.dropout.hidden),
                 "dropout", messenger));
  HDT_RETURN_IF_ERROR(check_same(flags.load_hf.empty() ? "none" : "one", "models to begin with", messenger));
  // Everything that decides which rank holds what.
  std::string replicas = flags.layout.use_tp_pp_dp_mapping ? "tp-pp-dp" : "tp-dp-pp";
  replicas += fmt::format(", {}", training::schedule_name(flags.trainer.schedule));
  for (int i = 0; i < layout.num_replicas(); ++i) {
    const training::Replica& replica = layout.replica(i);
    replicas += fmt::format(", [{}] in {} chunks, {} x {}", fmt::join(replica.stage_layers, " "),
                            replica.chunks, replica.num_micro_batches, replica.micro_batch_size);
  }
  HDT_RETURN_IF_ERROR(check_same(replicas, "layouts", messenger));
  const auto& trainer = flags.trainer;
  HDT_RETURN_IF_ERROR(check_same(
      fmt::format("seed {}, {} iters, lr {} {} {} {} {}, decay {}, beta {} {}, eps {}, clip {}, bucket {}",
                  trainer.seed, flags.train_iters, trainer.learning_rate.peak, trainer.learning_rate.minimum,
                  trainer.learning_rate.warmup_steps, trainer.learning_rate.total_steps,
                  training::learning_rate_decay_name(trainer.learning_rate.decay), trainer.adamw.weight_decay,
                  trainer.adamw.beta1, trainer.adamw.beta2, trainer.adamw.epsilon, trainer.clip_gradient_norm,
                  trainer.bucket_elements),
      "optimizer settings", messenger));
  HDT_RETURN_IF_ERROR(check_same(
      trainer.shards.sharded ? fmt::format("one a rank, weights {}",
                                           trainer.shards.weights.empty()
                                               ? "1"
                                               : fmt::format("{}", fmt::join(trainer.shards.weights, " ")))
                             : "none",
      "shards of the optimizer", messenger));
  HDT_RETURN_IF_ERROR(check_same(flags.save.empty() ? "none"
                                                    : fmt::format("every {} steps{}", flags.save_interval,
                                                                  flags.elastic ? ", elastic" : ""),
                                 "checkpoints to save", messenger));
  HDT_RETURN_IF_ERROR(
      check_same(fmt::format("every {} steps", flags.check_weights), "checks of weights", messenger));
  HDT_RETURN_IF_ERROR(
      check_same(fmt::format("sample {} tokens, temperature {}, top-k {}, top-p {}, prompt {}",
                             flags.sample_tokens, flags.sampling.temperature, flags.sampling.top_k,
                             flags.sampling.top_p, flags.sample_prompt),
                 "sampling", messenger));
  HDT_RETURN_IF_ERROR(check_same(data + document_flags(flags), "data", messenger));
  HDT_RETURN_IF_ERROR(check_same(
      flags.has_split ? fmt::format("{} batches every {} steps", flags.eval_iters, flags.eval_interval)
                      : "none",
      "evaluations", messenger));
  return check_same(checkpoint.empty() ? "none" : checkpoint, "checkpoints to go on from", messenger);
}

}  // namespace hdt::tools
