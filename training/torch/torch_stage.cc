// torch_stage.cc: StageCompute on torch's autograd.
//
// Every unit has a graph of its own, because its input is a leaf. So backward goes unit by unit, and the
// gradient of a unit is known to be complete as soon as its part has run. A layer that is recomputed keeps
// its leaf only: backward makes its graph from the leaf, and then goes on as for the others. Tensors of
// parameters and gradients are views of the engine's memory; nothing is copied but activations at the ends
// of the stage, and gradients that the engine has in another type. In fp16 each unit computes in fp32, with
// copies of its parameters (wide_parameters.h), and rounds what it hands on, forward and backward.
#include "training/torch/torch_stage.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>
#include <vector>

#include "training/torch/documents.h"
#include "training/torch/model_layers.h"
#include "training/torch/tensor_names.h"
#include "training/torch/token_loss.h"
#include "training/torch/wide_parameters.h"

namespace hdt::training {
namespace {

at::ScalarType scalar_type_of(NumberType type) {
  switch (type) {
    case NumberType::kBFloat16:
      return at::kBFloat16;
    case NumberType::kFloat16:
      return at::kHalf;
    case NumberType::kFloat64:
      return at::kDouble;
    case NumberType::kFloat32:
      break;
  }
  return at::kFloat;
}

// The type in which a unit computes.
at::ScalarType computed_type_of(NumberType type) {
  return type == NumberType::kFloat16 ? at::kFloat : scalar_type_of(type);
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
  TorchStage(const ModelShape& shape, UnitRange units, const TorchStageOptions& options)
      : shape_(shape),
        units_(units),
        options_(options),
        layers_(make_layers(shape, computed_type_of(options.type))),
        wide_(units.size() + 1) {
    // The last place is the tied unit's.
    parameters_.resize(units.size() + 1);
    sums_.resize(units.size() + 1);
  }

  NumberType type() const override { return options_.type; }
  UnitRange units() const override { return units_; }
  bool has_tied_unit() const override {
    return shape_.tied_head && (units_.contains(0) || is_head(units_.end - 1));
  }
  int sequence_length() const override { return static_cast<int>(shape_.sequence_length); }
  int64_t vocab_size() const override { return shape_.vocab_size; }
  // Documents begin where the tokens say so.
  bool reads_tokens() const override {
    return shape_.positions_reset_after >= 0 || shape_.attention_reset_after >= 0;
  }
  // All units but the head hand on the same.
  size_t activation_elements(int /*unit*/, size_t tokens) const override {
    return tokens * static_cast<size_t>(shape_.hidden_size);
  }

  std::vector<TensorInfo> tensors(int unit) const override { return named_tensors(shape_, unit); }

  // Autograd adds into a gradient tensor that is already there, so gradients arrive in the engine's memory.
  // Its type is that of the parameter; where the engine's is another one, add_to_sums() brings them there.
  void bind(int unit, TypedSpan parameters, TypedSpan gradients) override {
    size_t at = 0;
    for (const ParameterShape& parameter : parameter_shapes(unit)) {
      at::Tensor tensor = view_of(parameters.subspan(at, parameters.size() - at), parameter.sizes);
      const at::Tensor sum = view_of(gradients.subspan(at, gradients.size() - at), parameter.sizes);
      if (is_widened()) {
        sums_[place_of(unit)].push_back(sum);
      } else if (gradients.type() == type()) {
        tensor.set_requires_grad(true);
        tensor.mutable_grad() = sum;
      } else {
        tensor.set_requires_grad(true);
        tensor.mutable_grad() = at::zeros(parameter.sizes, scalar_type_of(type()));
        sums_[place_of(unit)].push_back(sum);
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
    const std::vector<ParameterShape> shapes = parameter_shapes(unit);
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
  LossSum forward(int slot, const MicroBatch& batch, ConstTypedSpan input, TypedSpan output) override {
    return forward(in_slot(slot), batch, options_.dropout, input, output);
  }

  // Without graphs and dropout; what forward() keeps is dropped at once.
  LossSum evaluate(std::span<const int64_t> samples, ConstTypedSpan input, TypedSpan output) override {
    const c10::AutoGradMode no_gradients(false);
    InFlight evaluated;
    return forward(evaluated, {.samples = samples}, {}, input, output);
  }

  // Unit by unit from the last: run its graph with the gradient of its output; the gradient of its leaf
  // is that of the unit before.
  void backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                const UnitDone& unit_done) override {
    InFlight& batch = slots_[slot];
    at::Tensor gradient = received_gradient(output_gradient, batch);
    for (int unit = units_.end - 1; unit >= units_.first; --unit) {
      // Popped before it runs, so that a unit's graph is freed as soon as its gradient is complete.
      Saved part = std::move(batch.units.back());
      batch.units.pop_back();
      recompute(unit, batch, part);
      part.output.backward(gradient);
      if (unit != 0) gradient = part.input.grad();
      add_to_sums(unit);
      release(unit);
      unit_done(unit);
    }
    if (!input_gradient.empty()) copy_out(gradient, input_gradient);
  }

  bool has_split_backward() const override { return true; }

  // As backward(), but the products keep the gradients of their weights for the second part. The embedding
  // has nothing in front of it, so all of its backward is in the second part.
  void backward_input(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient) override {
    InFlight& batch = slots_[slot];
    at::Tensor gradient = received_gradient(output_gradient, batch);
    for (int unit = units_.end - 1; unit >= units_.first; --unit) {
      Saved& part = batch.units[unit - units_.first];
      if (unit == 0) {
        part.output_gradient = gradient;
        continue;
      }
      recompute(unit, batch, part);
      weight_gradients_.keep_in(&part.kept);
      part.output.backward(gradient);
      weight_gradients_.keep_in(nullptr);
      gradient = part.input.grad();
      // The graph has run; what the second part needs is in `kept`.
      part.input = part.output = at::Tensor();
      // Those of norms are there now. Each micro-batch's are rounded by themselves, as in backward().
      if (is_widened()) add_own_to_sums(unit);
    }
    if (!input_gradient.empty()) copy_out(gradient, input_gradient);
  }

  void backward_weights(int slot, const UnitDone& unit_done) override {
    std::vector<Saved>& saved = slots_[slot].units;
    for (int unit = units_.end - 1; unit >= units_.first; --unit) {
      // Popped, as in backward().
      const Saved part = std::move(saved.back());
      saved.pop_back();
      if (unit == 0) part.output.backward(part.output_gradient);
      for (const WeightGradient& gradient : part.kept) gradient.add();
      add_to_sums(unit);
      release(unit);
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
      acquire(unit);
      if (is_head(unit))
        copy_out(linear(final_norm(widened(flow.select(1, length - 1))), {head_matrix()}, weight_gradients_),
                 logits);
      else if (unit == 0)
        flow = handed_on(layers_->embedding(embedding_parameters(), flow, {.position = position}));
      else
        flow = handed_on(layers_->layer(unit_tensors(unit), weight_gradients_, widened(flow),
                                        {.cache = cache_of(unit, position), .position = position}));
      release(unit);
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

  // A micro-batch between its forward and its backward.
  struct InFlight {
    std::vector<Saved> units;
    int64_t step = 0;
    int64_t first_sample = 0;
    int64_t samples = 0;
    double loss_factor = 1;
    DropoutRates dropout;
    // UnitContext's, the same for all units.
    at::Tensor positions, mask;
  };

  InFlight& in_slot(int slot) {
    if (static_cast<size_t>(slot) >= slots_.size()) slots_.resize(slot + 1);
    return slots_[slot];
  }

  LossSum forward(InFlight& in_flight, const MicroBatch& batch, const DropoutRates& dropout,
                  ConstTypedSpan input, TypedSpan output) {
    const int64_t length = shape_.sequence_length;
    // Each row is a sample: length inputs, then the last target.
    at::Tensor tokens;
    if (!batch.samples.empty()) {
      tokens =
          at::from_blob(const_cast<int64_t*>(batch.samples.data()),
                        {static_cast<int64_t>(batch.samples.size()) / (length + 1), length + 1}, at::kLong);
    }
    at::Tensor flow = input.empty() ? tokens.narrow(1, 0, length) : received(input, length);
    in_flight = {{}, batch.step, batch.first_sample, flow.size(0), batch.loss_factor, dropout, {}, {}};
    find_documents(tokens, in_flight);
    LossSum loss;
    for (int unit = units_.first; unit < units_.end; ++unit) {
      batch.need(unit);
      acquire(unit);
      // detach() cuts the graph in front of the unit. Token numbers have no gradient, so the embedding
      // has no leaf.
      at::Tensor leaf = flow;
      if (unit != 0) leaf = flow.detach().set_requires_grad(true);
      if (is_recomputed(unit)) {
        const c10::AutoGradMode no_gradients(false);
        flow = layer_forward(unit, leaf, in_flight);
        in_flight.units.push_back({leaf});
        release(unit);
        continue;
      }
      if (is_head(unit))
        std::tie(flow, loss) = head_forward(leaf, tokens);
      else if (unit == 0)
        flow = handed_on(layers_->embedding(embedding_parameters(), leaf, context_of(unit, in_flight)));
      else
        flow = layer_forward(unit, leaf, in_flight);
      in_flight.units.push_back({leaf, flow});
      // A graph needs the parameters until its backward.
      if (!c10::GradMode::is_enabled()) release(unit);
    }
    if (!output.empty()) copy_out(flow, output);
    return loss;
  }

  // The loss belongs to the head's graph. It is summed, not averaged (compute.h).
  std::pair<at::Tensor, LossSum> head_forward(const at::Tensor& leaf, const at::Tensor& tokens) {
    const int64_t length = shape_.sequence_length;
    at::Tensor targets = tokens.narrow(1, 1, length).reshape({-1});
    int64_t counted = targets.numel();
    if (shape_.masked_after >= 0) {
      const at::Tensor masked = tokens.narrow(1, 0, length).reshape({-1}).eq(shape_.masked_after);
      targets = targets.masked_fill(masked, kIgnoredTarget);
      counted -= masked.sum().item<int64_t>();
    }
    const at::Tensor rows = final_norm(widened(leaf)).view({-1, shape_.hidden_size});
    const at::Tensor loss = token_loss(rows, head_matrix(), targets, weight_gradients_);
    return {loss, {loss.item<double>(), counted}};
  }

  void find_documents(const at::Tensor& tokens, InFlight& batch) const {
    if (!reads_tokens()) return;
    const at::Tensor inputs = tokens.narrow(1, 0, shape_.sequence_length);
    if (shape_.positions_reset_after >= 0)
      batch.positions = document_positions(inputs, shape_.positions_reset_after);
    if (shape_.attention_reset_after >= 0)
      batch.mask =
          document_mask(document_positions(inputs, shape_.attention_reset_after), computed_type_of(type()));
  }

  UnitContext context_of(int unit, const InFlight& batch) const {
    return {.positions = batch.positions,
            .mask = batch.mask,
            .dropout = {batch.dropout, unit, batch.step, batch.first_sample, batch.samples},
            .recompute_attention = is_among_first(unit, options_.recomputed_attentions)};
  }

  bool is_head(int unit) const { return unit == shape_.num_layers + 1; }
  // Whether it is one of the first layers of the stage, as the planner counts them
  // (training/plan/search/recomputation.h).
  bool is_among_first(int unit, int layers) const {
    const int first_layer = std::max(units_.first, 1);
    return unit >= first_layer && !is_head(unit) && unit - first_layer < layers;
  }
  bool is_recomputed(int unit) const { return is_among_first(unit, options_.recomputed_layers); }
  // Makes the graph that a recomputed layer has not kept. The layers are pure functions of leaf, parameters
  // and context, and no update comes between forward and backward, so the graph is the one that forward would
  // have made.
  void recompute(int unit, const InFlight& batch, Saved& part) {
    if (!is_recomputed(unit)) return;
    acquire(unit);
    part.output = layer_forward(unit, part.input, batch);
  }
  // On the last stage the output is the loss, whose gradient is the loss factor; undefined, it is 1.
  at::Tensor received_gradient(ConstTypedSpan gradient, const InFlight& batch) const {
    if (!gradient.empty()) return received(gradient, shape_.sequence_length);
    if (batch.loss_factor == 1) return {};
    return at::full({}, batch.loss_factor, batch.units.back().output.options().requires_grad(false));
  }
  // Moves a unit's gradients to where the engine has them in another type; with the first unit's, which is
  // the last to be complete, those of the tied one.
  void add_to_sums(int unit) {
    // The copy of the tied matrix lives as long as a use of it.
    if (is_widened() ? uses_tied_unit(unit) : unit == units_.first && has_tied_unit())
      add_own_to_sums(kTiedUnit);
    add_own_to_sums(unit);
  }
  void add_own_to_sums(int unit) {
    std::vector<at::Tensor>& sums = sums_[place_of(unit)];
    for (size_t i = 0; i < sums.size(); ++i) {
      at::Tensor& gradient = unit_tensors(unit)[i].mutable_grad();
      sums[i].add_(gradient);
      gradient.zero_();
    }
  }
  size_t place_of(int unit) const {
    return static_cast<size_t>(unit == kTiedUnit ? units_.size() : unit - units_.first);
  }
  // The parameters of a unit as it computes with them. In fp16 they are copies, between acquire() and
  // release(); without a copy these are the stored ones.
  std::vector<at::Tensor>& unit_tensors(int unit) {
    const size_t place = place_of(unit);
    return wide_.has(place) ? wide_.tensors(place) : parameters_[place];
  }
  bool is_widened() const { return type() == NumberType::kFloat16; }
  // The unit is computed from now on. The tied matrix goes with each of its two uses.
  void acquire(int unit) {
    if (!is_widened()) return;
    wide_.acquire(place_of(unit), parameters_[place_of(unit)]);
    if (uses_tied_unit(unit)) wide_.acquire(place_of(kTiedUnit), parameters_[place_of(kTiedUnit)]);
  }
  // Its gradients have been added to the sums, if it has any.
  void release(int unit) {
    if (!is_widened()) return;
    wide_.release(place_of(unit));
    if (uses_tied_unit(unit)) wide_.release(place_of(kTiedUnit));
  }
  bool uses_tied_unit(int unit) const { return shape_.tied_head && (unit == 0 || is_head(unit)); }
  // What a unit computes with, of what it was handed, and the way back.
  at::Tensor widened(const at::Tensor& values) const { return is_widened() ? values.to(at::kFloat) : values; }
  at::Tensor handed_on(const at::Tensor& values) const {
    return is_widened() ? values.to(at::kHalf) : values;
  }
  // The parameters that are bound as those of `unit`. The layers know no tied unit: its matrix is the first
  // parameter of their embedding.
  std::vector<ParameterShape> parameter_shapes(int unit) const {
    std::vector<ParameterShape> shapes = layers_->parameters(std::max(unit, 0));
    if (unit == kTiedUnit) return {shapes.front()};
    if (unit == 0 && shape_.tied_head) shapes.erase(shapes.begin());
    return shapes;
  }
  Parameters embedding_parameters() {
    Parameters parameters = unit_tensors(0);
    if (shape_.tied_head) parameters.insert(parameters.begin(), unit_tensors(kTiedUnit).front());
    return parameters;
  }
  // Activations as [B, T, hidden]; B follows from the size.
  at::Tensor received(ConstTypedSpan input, int64_t length) const {
    return view_of(input, {static_cast<int64_t>(input.size()) / (length * shape_.hidden_size), length,
                           shape_.hidden_size});
  }

  at::Tensor layer_forward(int unit, const at::Tensor& input, const InFlight& batch) {
    return handed_on(
        layers_->layer(unit_tensors(unit), weight_gradients_, widened(input), context_of(unit, batch)));
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
  // The output embedding.
  const at::Tensor& head_matrix() {
    return unit_tensors(shape_.tied_head ? kTiedUnit : shape_.num_layers + 1).front();
  }

  ModelShape shape_;
  UnitRange units_;
  TorchStageOptions options_;
  std::unique_ptr<ModelLayers> layers_;
  // Before the graphs, which refer to it.
  WeightGradients weight_gradients_;
  std::vector<std::vector<at::Tensor>> parameters_;  // by place_of() a unit
  // Likewise: views of the engine's gradients where these are not of the parameters' type; else none.
  std::vector<std::vector<at::Tensor>> sums_;
  WideParameters wide_;                // of fp16, by place_of() a unit
  std::vector<InFlight> slots_;        // grows as slots are used
  std::vector<KeyValueCache> caches_;  // by unit, of the text of infer()
};

}  // namespace

std::unique_ptr<TextCompute> make_torch_stage(const ModelShape& shape, UnitRange units,
                                              const TorchStageOptions& options) {
  return std::make_unique<TorchStage>(shape, units, options);
}

size_t key_value_bytes(const ModelShape& shape, NumberType type) {
  const auto elements =
      static_cast<size_t>(2 * shape.sequence_length * shape.query_groups() * shape.head_size());
  return elements * c10::elementSize(computed_type_of(type));
}

void set_torch_threads(int threads) { at::set_num_threads(threads); }

}  // namespace hdt::training
