// model_shape.cc: checks, and texts, of a model's sizes.
#include "training/torch/model_shape.h"

#include <fmt/format.h>

namespace hdt::training {

std::string check_shape(const ModelShape& shape) {
  if (shape.family == ModelFamily::kGpt2 && shape.hidden_size % shape.num_attention_heads != 0) {
    return fmt::format("--hidden-size {}: expected a multiple of --num-attention-heads {}, {} left over",
                       shape.hidden_size, shape.num_attention_heads,
                       shape.hidden_size % shape.num_attention_heads);
  }
  // Rotary position embedding turns pairs of a head's elements, so a head has an even size.
  if (shape.family == ModelFamily::kLlama && shape.hidden_size % (2 * shape.num_attention_heads) != 0) {
    return fmt::format(
        "--hidden-size {}: expected a multiple of twice --num-attention-heads {} (heads have an even "
        "size), {} left over",
        shape.hidden_size, shape.num_attention_heads, shape.hidden_size % (2 * shape.num_attention_heads));
  }
  if (shape.num_attention_heads % shape.query_groups() != 0) {
    return fmt::format("--num-query-groups {}: expected a divisor of --num-attention-heads {}, {} left over",
                       shape.num_query_groups, shape.num_attention_heads,
                       shape.num_attention_heads % shape.query_groups());
  }
  if (shape.sequence_length > shape.positions()) {
    return fmt::format("--seq-length {}: expected at most --max-position-embeddings {}",
                       shape.sequence_length, shape.positions());
  }
  return "";
}

std::map<std::string, std::string> model_facts(const ModelShape& shape) {
  const RopeScaling& scaling = shape.rope_scaling;
  const bool linear = scaling.kind == RopeScalingKind::kLinear;
  const bool llama3 = scaling.kind == RopeScalingKind::kLlama3;
  const bool gpt2 = shape.family == ModelFamily::kGpt2;
  return {
      {"position-embedding-type", gpt2 ? "learned_absolute" : "rope"},
      {"normalization", gpt2 ? "LayerNorm" : "RMSNorm"},
      {"num-layers", std::to_string(shape.num_layers)},
      {"hidden-size", std::to_string(shape.hidden_size)},
      {"num-attention-heads", std::to_string(shape.num_attention_heads)},
      {"num-query-groups", std::to_string(shape.query_groups())},
      {"ffn-hidden-size", std::to_string(shape.ffn_hidden_size)},
      {"vocab-size", std::to_string(shape.vocab_size)},
      {"max-position-embeddings", std::to_string(shape.positions())},
      {"norm-epsilon", fmt::format("{}", shape.norm_epsilon)},
      {"rotary-base", fmt::format("{}", shape.rotary_base)},
      {"rotary-seq-len-interpolation-factor", linear ? fmt::format("{}", scaling.factor) : "1"},
      {"rope-scaling-factor", llama3 ? fmt::format("{}", scaling.factor) : "1"},
      {"use-rope-scaling",
       llama3 ? fmt::format("low {}, high {}, original positions {}", scaling.low_frequency_factor,
                            scaling.high_frequency_factor, scaling.original_positions)
              : "no"},
      {"tie-embeddings-and-output-weights", shape.tied_head ? "yes" : "no"},
  };
}

}  // namespace hdt::training
