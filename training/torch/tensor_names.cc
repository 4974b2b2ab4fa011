// tensor_names.cc: the names, and the order that the layers compute on.
#include "training/torch/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>

#include "training/engine/layout.h"

namespace hdt::training {
namespace {

// Matrices and norms have a bias behind them.
std::vector<TensorInfo> gpt2_tensors(const ModelShape& shape, int unit) {
  const int64_t hidden = shape.hidden_size;
  const int64_t ffn = shape.ffn_hidden_size;
  const TensorInfo matrix = {"transformer.wte.weight", {shape.vocab_size, hidden}};
  const TensorInfo positions = {"transformer.wpe.weight", {shape.positions(), hidden}};
  if (unit == kTiedUnit) return {matrix};
  if (unit == 0) return shape.tied_head ? std::vector{positions} : std::vector{matrix, positions};
  std::vector<TensorInfo> all;
  const auto add = [&all](const std::string& part, std::vector<int64_t> sizes, int64_t outputs) {
    const bool decays = sizes.size() > 1;
    all.push_back({part + ".weight", std::move(sizes), decays});
    all.push_back({part + ".bias", {outputs}, false});
  };
  if (unit == shape.num_layers + 1) {
    if (!shape.tied_head) all.push_back({"lm_head.weight", {shape.vocab_size, hidden}});
    add("transformer.ln_f", {hidden}, hidden);
    return all;
  }
  const std::string layer = fmt::format("transformer.h.{}.", unit - 1);
  add(layer + "attn.c_attn", {hidden, 3 * hidden}, 3 * hidden);
  add(layer + "attn.c_proj", {hidden, hidden}, hidden);
  add(layer + "mlp.c_fc", {hidden, ffn}, ffn);
  add(layer + "mlp.c_proj", {ffn, hidden}, hidden);
  add(layer + "ln_1", {hidden}, hidden);
  add(layer + "ln_2", {hidden}, hidden);
  return all;
}

std::vector<TensorInfo> llama_tensors(const ModelShape& shape, int unit) {
  const int64_t hidden = shape.hidden_size;
  const int64_t ffn = shape.ffn_hidden_size;
  const int64_t keys = shape.query_groups() * shape.head_size();
  const TensorInfo matrix = {"model.embed_tokens.weight", {shape.vocab_size, hidden}};
  if (unit == kTiedUnit) return {matrix};
  if (unit == 0) return shape.tied_head ? std::vector<TensorInfo>() : std::vector{matrix};
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

}  // namespace

std::vector<TensorInfo> named_tensors(const ModelShape& shape, int unit) {
  return shape.family == ModelFamily::kGpt2 ? gpt2_tensors(shape, unit) : llama_tensors(shape, unit);
}

std::vector<TensorInfo> model_tensors(const ModelShape& shape) {
  std::vector<TensorInfo> all;
  for (int unit = shape.tied_head ? kTiedUnit : 0; unit < shape.num_layers + 2; ++unit) {
    std::vector<TensorInfo> more = named_tensors(shape, unit);
    std::ranges::move(more, std::back_inserter(all));
  }
  return all;
}

int64_t parameter_count(const ModelShape& shape) {
  return static_cast<int64_t>(elements_of(model_tensors(shape)));
}

}  // namespace hdt::training
