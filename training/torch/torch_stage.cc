// torch_stage.cc: StageCompute on torch's autograd.
//
// Every unit has a graph of its own, because its input is a leaf. So backward goes unit by unit, and the
// gradient of a unit is known to be complete as soon as its part has run. A layer that is recomputed keeps
// its leaf only: backward makes its graph from the leaf, and then goes on as for the others. Tensors of
// parameters and gradients are views of the engine's memory; nothing is copied but activations at the ends
// of the stage, and gradients that the engine has in another type.
#include "training/torch/torch_stage.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "training/torch/model_layers.h"
#include "training/torch/tensor_names.h"
#include "training/torch/token_loss.h"

namespace hdt::training {
namespace {

at::ScalarType scalar_type_of(NumberType type) {
  return type == NumberType::kBFloat16 ? at::kBFloat16 : at::kFloat;
}

// A tensor on memory that it does not own. torch has no read-only tensors; inputs and received gradients
// are only read.
at::Tensor view_of(ConstTypedSpan memory, at::IntArrayRef sizes) {
  return at::from_blob(const_cast<std::byte*>(memory.data()), sizes, scalar_type_of(memory.type()));
}

// Copies a tensor's elements in order, and converts them if `to` is of another type.
void copy_out(const at::Tensor& from, TypedSpan to) {
  const at::Tensor dense = from.to(scalar_type_of(to.type())).contiguous();
  std::memcpy(to.data(), dense.data_ptr(), to.bytes().size());
}

// One rank's stage. The saved graphs of micro-batches in flight are kept by slot.
class TorchStage final : public TextCompute {
 public:
  TorchStage(const ModelShape& shape, UnitRange units, int recomputed_layers, NumberType type)
      : shape_(shape),
        units_(units),
        recomputed_layers_(recomputed_layers),
        type_(type),
        layers_(make_layers(shape, scalar_type_of(type))) {
    parameters_.resize(units.size());
    sums_.resize(units.size());
  }

  NumberType type() const override { return type_; }
  UnitRange units() const override { return units_; }
  int sequence_length() const override { return static_cast<int>(shape_.sequence_length); }
  int64_t vocab_size() const override { return shape_.vocab_size; }
  // All units but the head hand on the same.
  size_t activation_elements(int /*unit*/, size_t tokens) const override {
    return tokens * static_cast<size_t>(shape_.hidden_size);
  }

  std::vector<TensorInfo> tensors(int unit) const override { return named_tensors(shape_, unit); }

  // Autograd adds into a gradient tensor that is already there, so gradients arrive in the engine's memory.
  // Its type is that of the parameter; where the engine's is another one, add_to_sums() brings them there.
  void bind(int unit, TypedSpan parameters, TypedSpan gradients) override {
    size_t at = 0;
    for (const ParameterShape& parameter : layers_->parameters(unit)) {
      at::Tensor tensor = view_of(parameters.subspan(at, parameters.size() - at), parameter.sizes);
      tensor.set_requires_grad(true);
      const at::Tensor sum = view_of(gradients.subspan(at, gradients.size() - at), parameter.sizes);
      if (gradients.type() == type_) {
        tensor.mutable_grad() = sum;
      } else {
        tensor.mutable_grad() = at::zeros(parameter.sizes, scalar_type_of(type_));
        sums_[unit - units_.first].push_back(sum);
      }
      at += static_cast<size_t>(tensor.numel());
      unit_tensors(unit).push_back(std::move(tensor));
    }
  }

  void initialize(int unit, uint64_t seed) override {
    const c10::AutoGradMode no_gradients(false);
    // Neighbouring seeds and units get unrelated streams. The factor is splitmix64's (2^64 divided by
    // the golden ratio).
    at::Generator random =
        at::detail::createCPUGenerator(seed * 0x9E3779B97F4A7C15ULL + static_cast<uint64_t>(unit));
    const std::vector<ParameterShape> shapes = layers_->parameters(unit);
    for (size_t i = 0; i < shapes.size(); ++i) {
      at::Tensor& tensor = unit_tensors(unit)[i];
      if (shapes[i].deviation > 0) {
        // Drawn in fp32, so that the start values of another type are these rounded.
        tensor.copy_(at::empty(tensor.sizes(), at::kFloat).normal_(0, shapes[i].deviation, random));
      } else {
        tensor.fill_(shapes[i].value);
      }
    }
  }

  // Steps: build the input, run unit after unit with a graph of its own, compute the loss at the head,
  // copy the output out. `input` and the tokens are used in place, so they must stay until backward().
  LossSum forward(int slot, std::span<const int64_t> samples, ConstTypedSpan input,
                  TypedSpan output) override {
    if (static_cast<size_t>(slot) >= slots_.size()) slots_.resize(slot + 1);
    std::vector<Saved>& saved = slots_[slot];
    saved.clear();
    const int64_t length = shape_.sequence_length;
    // Each row is a sample: length inputs, then the last target.
    at::Tensor tokens;
    if (!samples.empty()) {
      tokens = at::from_blob(const_cast<int64_t*>(samples.data()),
                             {static_cast<int64_t>(samples.size()) / (length + 1), length + 1}, at::kLong);
    }
    at::Tensor flow = input.empty() ? tokens.narrow(1, 0, length) : received(input, length);
    LossSum loss;
    for (int unit = units_.first; unit < units_.end; ++unit) {
      // detach() cuts the graph in front of the unit. Token numbers have no gradient, so the embedding
      // has no leaf.
      at::Tensor leaf = flow;
      if (unit != 0) leaf = flow.detach().set_requires_grad(true);
      if (is_recomputed(unit)) {
        const c10::AutoGradMode no_gradients(false);
        flow = layer_forward(unit, leaf);
        saved.push_back({leaf});
        continue;
      }
      // The loss belongs to the head's graph. It is summed, not averaged (compute.h).
      if (is_head(unit)) {
        at::Tensor targets = tokens.narrow(1, 1, length).reshape({-1});
        int64_t counted = targets.numel();
        if (shape_.masked_after >= 0) {
          const at::Tensor masked = tokens.narrow(1, 0, length).reshape({-1}).eq(shape_.masked_after);
          targets = targets.masked_fill(masked, kIgnoredTarget);
          counted -= masked.sum().item<int64_t>();
        }
        const at::Tensor rows = final_norm(leaf).view({-1, shape_.hidden_size});
        flow = token_loss(rows, head_matrix(), targets, weight_gradients_);
        loss = {flow.item<double>(), counted};
      } else {
        flow = body_forward(unit, leaf);
      }
      saved.push_back({leaf, flow});
    }
    if (!output.empty()) copy_out(flow, output);
    return loss;
  }

  // Without graphs; what forward() keeps is dropped at once.
  LossSum evaluate(std::span<const int64_t> samples, ConstTypedSpan input, TypedSpan output) override {
    const c10::AutoGradMode no_gradients(false);
    const LossSum loss = forward(0, samples, input, output);
    slots_[0].clear();
    return loss;
  }

  // Unit by unit from the last: run its graph with the gradient of its output; the gradient of its leaf
  // is that of the unit before.
  void backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                const UnitDone& unit_done) override {
    std::vector<Saved>& saved = slots_[slot];
    at::Tensor gradient = received_gradient(output_gradient);
    for (int unit = units_.end - 1; unit >= units_.first; --unit) {
      // Popped before it runs, so that a unit's graph is freed as soon as its gradient is complete.
      Saved part = std::move(saved.back());
      saved.pop_back();
      recompute(unit, part);
      part.output.backward(gradient);
      if (unit != 0) gradient = part.input.grad();
      add_to_sums(unit);
      unit_done(unit);
    }
    if (!input_gradient.empty()) copy_out(gradient, input_gradient);
  }

  bool has_split_backward() const override { return true; }

  // As backward(), but the products keep the gradients of their weights for the second part. The embedding
  // has nothing in front of it, so all of its backward is in the second part.
  void backward_input(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient) override {
    std::vector<Saved>& saved = slots_[slot];
    at::Tensor gradient = received_gradient(output_gradient);
    for (int unit = units_.end - 1; unit >= units_.first; --unit) {
      Saved& part = saved[unit - units_.first];
      if (unit == 0) {
        part.output_gradient = gradient;
        continue;
      }
      recompute(unit, part);
      weight_gradients_.keep_in(&part.kept);
      part.output.backward(gradient);
      weight_gradients_.keep_in(nullptr);
      gradient = part.input.grad();
      // The graph has run; what the second part needs is in `kept`.
      part.input = part.output = at::Tensor();
    }
    if (!input_gradient.empty()) copy_out(gradient, input_gradient);
  }

  void backward_weights(int slot, const UnitDone& unit_done) override {
    std::vector<Saved>& saved = slots_[slot];
    for (int unit = units_.end - 1; unit >= units_.first; --unit) {
      // Popped, as in backward().
      const Saved part = std::move(saved.back());
      saved.pop_back();
      if (unit == 0) part.output.backward(part.output_gradient);
      for (const WeightGradient& gradient : part.kept) gradient.add();
      add_to_sums(unit);
      unit_done(unit);
    }
  }

  // As forward() without graphs and without a slot, but with a cache for each layer. Only the last position's
  // logits are wanted.
  void infer(std::span<const int64_t> tokens, int64_t position, ConstTypedSpan input, TypedSpan output,
             std::span<float> logits) override {
    const c10::AutoGradMode no_gradients(false);
    const auto length = static_cast<int64_t>(tokens.size());
    at::Tensor flow = input.empty()
                          ? at::from_blob(const_cast<int64_t*>(tokens.data()), {1, length}, at::kLong)
                          : received(input, length);
    for (int unit = units_.first; unit < units_.end; ++unit) {
      if (is_head(unit))
        copy_out(linear(final_norm(flow.select(1, length - 1)), {head_matrix()}, weight_gradients_), logits);
      else if (unit == 0)
        flow = layers_->embedding(unit_tensors(unit), flow, position);
      else
        flow = layers_->layer(unit_tensors(unit), weight_gradients_, flow, cache_of(unit, position));
    }
    if (!output.empty()) copy_out(flow, output);
  }

 private:
  // A unit's graph: from its leaf to its output, which a recomputed layer does not have before its backward.
  // Between the two parts of a backward: what the second part needs.
  struct Saved {
    at::Tensor input;
    at::Tensor output = {};
    at::Tensor output_gradient = {};  // the embedding's
    std::vector<WeightGradient> kept = {};
  };

  bool is_head(int unit) const { return unit == shape_.num_layers + 1; }
  // The first layers of the stage, as the planner counts them (training/plan/search/recomputation.h).
  bool is_recomputed(int unit) const {
    const int first_layer = std::max(units_.first, 1);
    return unit >= first_layer && !is_head(unit) && unit - first_layer < recomputed_layers_;
  }
  // Makes the graph that a recomputed layer has not kept. The layers are pure functions of leaf and
  // parameters, and no update comes between forward and backward, so the graph is the one that forward would
  // have made.
  void recompute(int unit, Saved& part) {
    if (is_recomputed(unit)) part.output = layer_forward(unit, part.input);
  }
  // Undefined on the last stage, where the output is the loss and its gradient is 1.
  at::Tensor received_gradient(ConstTypedSpan gradient) const {
    return gradient.empty() ? at::Tensor() : received(gradient, shape_.sequence_length);
  }
  // Moves a unit's gradients to where the engine has them in another type. A tied head's matrix is the
  // embedding's, whose unit is complete last.
  void add_to_sums(int unit) {
    std::vector<at::Tensor>& sums = sums_[unit - units_.first];
    for (size_t i = 0; i < sums.size(); ++i) {
      at::Tensor& gradient = unit_tensors(unit)[i].mutable_grad();
      sums[i].add_(gradient);
      gradient.zero_();
    }
  }
  std::vector<at::Tensor>& unit_tensors(int unit) { return parameters_[unit - units_.first]; }
  // Activations as [B, T, hidden]; B follows from the size.
  at::Tensor received(ConstTypedSpan input, int64_t length) const {
    return view_of(input, {static_cast<int64_t>(input.size()) / (length * shape_.hidden_size), length,
                           shape_.hidden_size});
  }

  at::Tensor layer_forward(int unit, const at::Tensor& input) {
    return layers_->layer(unit_tensors(unit), weight_gradients_, input, nullptr);
  }
  // A unit before the head.
  at::Tensor body_forward(int unit, const at::Tensor& input) {
    return unit == 0 ? layers_->embedding(unit_tensors(unit), input, 0) : layer_forward(unit, input);
  }
  // The layer's, with the tokens before `position`.
  KeyValueCache* cache_of(int unit, int64_t position) {
    caches_.resize(units_.size());
    KeyValueCache& cache = caches_[unit - units_.first];
    cache.rewind(position);
    return &cache;
  }
  at::Tensor final_norm(const at::Tensor& input) {
    return layers_->final_norm(unit_tensors(shape_.num_layers + 1), input);
  }
  // The output embedding. Where that is the embedding itself, this stage holds both units, and the gradient
  // of both uses adds up in the embedding's memory: the head's is there first, and the embedding's unit is
  // the last one to be complete.
  const at::Tensor& head_matrix() {
    return unit_tensors(shape_.tied_head ? 0 : shape_.num_layers + 1).front();
  }

  ModelShape shape_;
  UnitRange units_;
  int recomputed_layers_;
  NumberType type_;
  std::unique_ptr<ModelLayers> layers_;
  // Before the graphs, which refer to it.
  WeightGradients weight_gradients_;
  std::vector<std::vector<at::Tensor>> parameters_;  // by unit
  // By unit: views of the engine's gradients where these are not of the parameters' type; else none.
  std::vector<std::vector<at::Tensor>> sums_;
  std::vector<std::vector<Saved>> slots_;  // by slot, unit; grows as slots are used
  std::vector<KeyValueCache> caches_;      // by unit, of the text of infer()
};

}  // namespace

std::unique_ptr<TextCompute> make_torch_stage(const ModelShape& shape, UnitRange units, int recomputed_layers,
                                              NumberType type) {
  return std::make_unique<TorchStage>(shape, units, recomputed_layers, type);
}

void set_torch_threads(int threads) { at::set_num_threads(threads); }

}  // namespace hdt::training
