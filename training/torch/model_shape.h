// model_shape.h: the sizes of a LLaMA-style model. Free of torch, so that flags can be read without its
// headers.
#pragma once

#include <cstdint>

#include "base/status.h"

namespace hdt::training {

// The same on all ranks. head_size() must be a whole, even number, as rotary embeddings rotate pairs.
struct ModelShape {
  int num_layers = 0;
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t ffn_hidden_size = 0;  // of the gate and of the up projection
  int64_t sequence_length = 0;  // tokens of a sample, the maximum for inference
  int64_t vocab_size = 0;
  // The loss of the token that follows this one does not count (Megatron's --eod-mask-loss); -1: all count.
  int64_t masked_after = -1;
  double norm_epsilon = 1e-5;    // added to the mean square in RMSNorm
  double rotary_base = 10000.0;  // of the frequencies of rotary embeddings

  int64_t head_size() const { return hidden_size / num_attention_heads; }
  // The parameters of the whole model: attention has four matrices, SwiGLU three; each layer has two
  // norms and the head one; the embedding and the head are separate.
  int64_t parameters() const {
    const int64_t layer = 4 * hidden_size * hidden_size + 3 * hidden_size * ffn_hidden_size + 2 * hidden_size;
    return num_layers * layer + 2 * vocab_size * hidden_size + hidden_size;
  }
};

}  // namespace hdt::training
