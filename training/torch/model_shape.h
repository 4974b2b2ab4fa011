// model_shape.h: the sizes of a LLaMA-style model. Free of torch.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace hdt::training {

struct ModelShape {
  int num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t ffn_hidden_size = 0;
  int64_t sequence_length = 0;
  int64_t vocab_size = 0;
  double norm_epsilon = 1e-5;
  double rotary_base = 10000.0;

  int64_t head_size() const { return hidden_size / num_attention_heads; }
  int64_t parameters() const {
    const int64_t layer = 4 * hidden_size * hidden_size + 3 * hidden_size * ffn_hidden_size + 2 * hidden_size;
    return num_layers * layer + 2 * vocab_size * hidden_size + hidden_size;
  }
};

}  // namespace hdt::training
