// model_shape.h: the sizes of a model, and which model it is. Free of torch, so that flags can be read
// without its headers.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace hdt::training {

// Which layers the model has: llama_layers.h, gpt2_layers.h.
enum class ModelFamily : uint8_t { kLlama, kGpt2 };

// How the angles of rotary embeddings are changed for texts that are longer than those of the pre-training.
enum class RopeScalingKind : uint8_t {
  kNone,
  kLinear,  // all positions are divided by `factor` (Chen et al. 2023: "Position interpolation")
  // Low frequencies are divided by `factor`, high ones stay, those between change smoothly (Dubey et al.
  // 2024: "The Llama 3 herd of models").
  kLlama3
};

struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  double factor = 1;
  // Of kLlama3. A frequency is low where its wave is longer than original_positions / low_frequency_factor,
  // and high where it is shorter than original_positions / high_frequency_factor.
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;
  int64_t original_positions = 8192;  // tokens of a text in the pre-training
};

// The same on all ranks. head_size() must be a whole, even number, as rotary embeddings rotate pairs;
// check_shape() tells.
struct ModelShape {
  ModelFamily family = ModelFamily::kLlama;
  int num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  // Heads of keys and values. Each serves as many heads of queries as any other; 0: one each.
  int64_t num_query_groups = 0;
  int64_t ffn_hidden_size = 0;  // of the up projection, and of LLaMA's gate
  int64_t sequence_length = 0;  // tokens of a sample, the maximum for inference
  int64_t vocab_size = 0;
  // Positions that the model is made for; 0: those of a sample. GPT-2 has a parameter for each.
  int64_t max_position_embeddings = 0;
  // The loss of the token that follows this one does not count (Megatron's --eod-mask-loss); -1: all count.
  int64_t masked_after = -1;
  // The token after which positions begin again, and attention sees nothing of what was before (Megatron's
  // --reset-position-ids and --reset-attention-mask); -1: a sample is one text. Of training and evaluation:
  // a text that is generated is one text.
  int64_t positions_reset_after = -1;
  int64_t attention_reset_after = -1;
  double norm_epsilon = 1e-5;    // added to the mean square, or the variance, in norms
  double rotary_base = 10000.0;  // of the frequencies of rotary embeddings
  RopeScaling rope_scaling;
  // The head's matrix is the embedding: one tensor, whose gradient is that of both uses (kTiedUnit in
  // layout.h).
  bool tied_head = false;

  int64_t head_size() const { return hidden_size / num_attention_heads; }
  int64_t query_groups() const { return num_query_groups == 0 ? num_attention_heads : num_query_groups; }
  int64_t positions() const {
    return max_position_embeddings == 0 ? sequence_length : max_position_embeddings;
  }
};

// "" or what is wrong with sizes that do not fit together, by the names of hdt-train's flags.
std::string check_shape(const ModelShape& shape);

// All that decides what the model computes, by the names of hdt-train's flags without "--", as texts: two
// shapes with the same facts are the same model. Without seq-length, which a run chooses.
std::map<std::string, std::string> model_facts(const ModelShape& shape);

}  // namespace hdt::training
