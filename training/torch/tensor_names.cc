// tensor_names.cc: the names, and the order that the layers compute on.
#include "training/torch/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace hdt::training {

std::vector<TensorInfo> named_tensors(const ModelShape& shape, int unit) {
  const int64_t hidden = shape.hidden_size;
  const int64_t ffn = shape.ffn_hidden_size;
  const int64_t keys = shape.query_groups() * shape.head_size();
  if (unit == 0) return {{"model.embed_tokens.weight", {shape.vocab_size, hidden}}};
  if (unit == shape.num_layers + 1) {
    std::vector<TensorInfo> head = {{"model.norm.weight", {hidden}, false}};
    if (!shape.tied_head) head.insert(head.begin(), {"lm_head.weight", {shape.vocab_size, hidden}});
    return head;
  }
  // Layers count from 0 there, and units from the embedding here.
  const auto name = [unit](const char* part) {
    return fmt::format("model.layers.{}.{}.weight", unit - 1, part);
  };
  return {
      {name("self_attn.q_proj"), {hidden, hidden}},
      {name("self_attn.k_proj"), {keys, hidden}},
      {name("self_attn.v_proj"), {keys, hidden}},
      {name("self_attn.o_proj"), {hidden, hidden}},
      {name("mlp.gate_proj"), {ffn, hidden}},
      {name("mlp.up_proj"), {ffn, hidden}},
      {name("mlp.down_proj"), {hidden, ffn}},
      {name("input_layernorm"), {hidden}, false},
      {name("post_attention_layernorm"), {hidden}, false},
  };
}

std::vector<TensorInfo> model_tensors(const ModelShape& shape) {
  std::vector<TensorInfo> all;
  for (int unit = 0; unit < shape.num_layers + 2; ++unit) {
    std::vector<TensorInfo> more = named_tensors(shape, unit);
    std::ranges::move(more, std::back_inserter(all));
  }
  return all;
}

int64_t parameter_count(const ModelShape& shape) {
  return static_cast<int64_t>(elements_of(model_tensors(shape)));
}

}  // namespace hdt::training
