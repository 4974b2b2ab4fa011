// fake_compute.cc: forward and backward of the small model.
#include "tests/training/engine/fake_compute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <stdexcept>
#include <utility>

namespace hdt::training::testing {

std::vector<TensorInfo> FakeCompute::tensors(int unit) const {
  const int64_t hidden = shape_.hidden;
  if (unit == kTiedUnit) return {{"embedding", {shape_.vocab, hidden}}};
  if (bound_unit(unit) == kTiedUnit) return {};
  if (unit == 0) return {{"embedding", {shape_.vocab, hidden}}};
  if (is_head(unit)) return {{"head", {shape_.vocab, hidden}}};
  const std::string layer = "layer." + std::to_string(unit - 1);
  return {{layer + ".weight", {hidden, hidden}}, {layer + ".bias", {hidden}, false}};
}

void FakeCompute::bind(int unit, TypedSpan parameters, TypedSpan gradients) {
  bound_[unit] = {parameters, gradients};
}

void FakeCompute::initialize(int unit, uint64_t seed) {
  std::mt19937_64 random(seed * 1000 + static_cast<uint64_t>(unit));
  std::normal_distribution<float> normal(0.0F, 0.3F);
  Rows values(bound_[unit].parameters.size());
  for (double& parameter : values) parameter = normal(random);
  convert(values, bound_[unit].parameters);
}

FakeCompute::Rows FakeCompute::embed(std::span<const int64_t> tokens) {
  Rows out;
  const Rows weights = weights_of(0);
  for (const int64_t token : tokens) {
    const auto row = std::span(weights).subspan(token * shape_.hidden, shape_.hidden);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

FakeCompute::Rows FakeCompute::layer(int unit, const Rows& in, Rows& hyperbolic) {
  const int hidden = shape_.hidden;
  const Rows weights = weights_of(unit);
  hyperbolic.assign(in.size(), 0.0);
  Rows out = in;
  for (size_t row = 0; row < in.size(); row += hidden) {
    for (int j = 0; j < hidden; ++j) {
      double sum = weights[hidden * hidden + j];
      for (int i = 0; i < hidden; ++i) sum += in[row + i] * weights[i * hidden + j];
      hyperbolic[row + j] = std::tanh(sum);
      out[row + j] += hyperbolic[row + j];
    }
  }
  return out;
}

FakeCompute::Rows FakeCompute::head(int unit, const Rows& in) {
  const int hidden = shape_.hidden;
  const Rows weights = weights_of(unit);
  Rows logits;
  for (size_t row = 0; row < in.size(); row += hidden) {
    for (int v = 0; v < shape_.vocab; ++v) {
      double sum = 0;
      for (int i = 0; i < hidden; ++i) sum += in[row + i] * weights[v * hidden + i];
      logits.push_back(sum);
    }
  }
  return logits;
}

FakeCompute::Rows FakeCompute::received(int unit, ConstTypedSpan values) const {
  Rows rows = rows_of(values);
  rows.resize(values.size() / handed_on(unit) * shape_.hidden);
  return rows;
}

FakeCompute::Rows FakeCompute::rows_of(ConstTypedSpan values) {
  Rows rows(values.size());
  convert(values, rows);
  return rows;
}

FakeCompute::Rows FakeCompute::rounded(const Rows& values) const {
  const TypedMemory memory = plain_memory(shape_.type, values.size());
  convert(values, memory.span());
  return rows_of(memory.span());
}

void FakeCompute::hand_on(int unit, const Rows& flow, TypedSpan to) const {
  if (to.empty()) return;
  ASSERT_EQ(to.size(), flow.size() / shape_.hidden * handed_on(unit));
  Rows padded = flow;
  padded.resize(to.size(), std::nan(""));
  convert(padded, to);
}

LossSum FakeCompute::forward(int slot, const MicroBatch& batch, ConstTypedSpan input, TypedSpan output) {
  computed_.emplace_back(batch.step, batch.first_sample);
  tokens_given_.push_back(batch.samples.size());
  Saved saved;
  saved.loss_factor = batch.loss_factor;
  const size_t length = shape_.sequence_length;
  for (size_t sample = 0; sample < batch.samples.size(); sample += length + 1) {
    for (size_t i = 0; i < length; ++i) {
      saved.inputs.push_back(batch.samples[sample + i]);
      saved.targets.push_back(batch.samples[sample + i + 1]);
    }
  }
  LossSum loss;
  Rows flow = received(units_.first - 1, input);
  for (int unit = units_.first; unit < units_.end; ++unit) {
    batch.need(unit);
    saved.flow.push_back(flow);
    saved.hyperbolic.emplace_back();
    if (unit == 0) {
      flow = embed(saved.inputs);
    } else if (!is_head(unit)) {
      flow = rounded(layer(unit, flow, saved.hyperbolic.back()));
    } else {
      saved.probabilities = head(unit, flow);
      const size_t vocab = shape_.vocab;
      for (size_t token = 0; token < saved.targets.size(); ++token) {
        const std::span<double> row = std::span(saved.probabilities).subspan(token * vocab, vocab);
        double total = 0;
        for (double& value : row) total += value = std::exp(value);
        for (double& value : row) value /= total;
        loss.loss -= std::log(row[saved.targets[token]]);
        ++loss.tokens;
      }
    }
  }
  hand_on(units_.end - 1, flow, output);
  slots_[slot] = std::move(saved);
  greatest_in_flight_ = std::max(greatest_in_flight_, static_cast<int>(slots_.size()));
  return loss;
}

// The gradient of the layer's tanh, before its matrix.
double FakeCompute::inner(const Rows& hyperbolic, const Rows& gradient, size_t at) {
  return gradient[at] * (1 - hyperbolic[at] * hyperbolic[at]);
}

// That of the logit of `v`.
double FakeCompute::logit_gradient(const Saved& saved, size_t token, int v) const {
  const double unscaled =
      saved.probabilities[token * shape_.vocab + v] - (v == saved.targets[token] ? 1.0 : 0.0);
  return unscaled * saved.loss_factor;
}

FakeCompute::Rows FakeCompute::input_gradient_of(int unit, const Saved& saved, const Rows& gradient) {
  if (unit == 0) return {};
  const int hidden = shape_.hidden;
  const Rows weights = weights_of(unit);
  if (is_head(unit)) {
    Rows before(saved.flow.back().size(), 0.0);
    for (size_t token = 0; token < saved.targets.size(); ++token) {
      for (int v = 0; v < shape_.vocab; ++v) {
        const double logit = logit_gradient(saved, token, v);
        for (int i = 0; i < hidden; ++i) before[token * hidden + i] += weights[v * hidden + i] * logit;
      }
    }
    return before;
  }
  Rows before = gradient;
  for (size_t row = 0; row < gradient.size(); row += hidden) {
    for (int j = 0; j < hidden; ++j) {
      const double more = inner(saved.hyperbolic[unit - units_.first], gradient, row + j);
      for (int i = 0; i < hidden; ++i) before[row + i] += weights[i * hidden + j] * more;
    }
  }
  return before;
}

void FakeCompute::add_weight_gradient(int unit, const Saved& saved, const Rows& gradient) {
  const int hidden = shape_.hidden;
  Unit& bound = bound_.at(bound_unit(unit));
  Rows gradients = rows_of(bound.gradients);
  const Rows& in = saved.flow[unit - units_.first];
  if (unit == 0) {
    for (size_t i = 0; i < gradient.size(); ++i)
      gradients[saved.inputs[i / hidden] * hidden + i % hidden] += gradient[i];
  } else if (is_head(unit)) {
    for (size_t token = 0; token < saved.targets.size(); ++token) {
      for (int v = 0; v < shape_.vocab; ++v) {
        const double logit = logit_gradient(saved, token, v);
        for (int i = 0; i < hidden; ++i) gradients[v * hidden + i] += in[token * hidden + i] * logit;
      }
    }
  } else {
    for (size_t row = 0; row < in.size(); row += hidden) {
      for (int j = 0; j < hidden; ++j) {
        const double more = inner(saved.hyperbolic[unit - units_.first], gradient, row + j);
        gradients[hidden * hidden + j] += more;
        for (int i = 0; i < hidden; ++i) gradients[i * hidden + j] += in[row + i] * more;
      }
    }
  }
  convert(gradients, bound.gradients);
}

LossSum FakeCompute::evaluate(std::span<const int64_t> samples, ConstTypedSpan input, TypedSpan output) {
  EXPECT_TRUE(slots_.empty()) << "a micro-batch of a step is in flight";
  const int greatest = greatest_in_flight_;
  const LossSum loss = forward(0, {.samples = samples}, input, output);
  slots_.clear();
  greatest_in_flight_ = greatest;  // that of training
  return loss;
}

void FakeCompute::backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                           const UnitDone& unit_done) {
  const Saved& saved = slots_.at(slot);
  Rows gradient = received(units_.end - 1, output_gradient);
  for (int unit = units_.end - 1; unit >= units_.first; --unit) {
    Rows before = rounded(input_gradient_of(unit, saved, gradient));
    add_weight_gradient(unit, saved, gradient);
    gradient = std::move(before);
    unit_done(unit);
  }
  hand_on(units_.first - 1, gradient, input_gradient);
  slots_.erase(slot);
}

void FakeCompute::backward_input(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient) {
  Saved& saved = slots_.at(slot);
  saved.gradients.resize(units_.size());
  Rows gradient = received(units_.end - 1, output_gradient);
  for (int unit = units_.end - 1; unit >= units_.first; --unit) {
    Rows before = rounded(input_gradient_of(unit, saved, gradient));
    saved.gradients[unit - units_.first] = std::exchange(gradient, std::move(before));
  }
  hand_on(units_.first - 1, gradient, input_gradient);
}

void FakeCompute::backward_weights(int slot, const UnitDone& unit_done) {
  const Saved& saved = slots_.at(slot);
  for (int unit = units_.end - 1; unit >= units_.first; --unit) {
    add_weight_gradient(unit, saved, saved.gradients.at(unit - units_.first));
    unit_done(unit);
  }
  slots_.erase(slot);
}

void FakeCompute::infer(std::span<const int64_t> tokens, int64_t position, ConstTypedSpan input,
                        TypedSpan output, std::span<float> logits) {
  if (position < 0 || static_cast<size_t>(position) > text_.size())
    throw std::logic_error("a gap in the text");
  text_.resize(static_cast<size_t>(position));
  text_.insert(text_.end(), tokens.begin(), tokens.end());
  if (text_.size() > static_cast<size_t>(shape_.sequence_length)) throw std::logic_error("a text too long");
  Rows flow = received(units_.first - 1, input);
  Rows unused;
  for (int unit = units_.first; unit < units_.end; ++unit) {
    if (unit == 0) {
      flow = embed(tokens);
    } else if (is_head(unit)) {
      flow = head(unit, flow);
    } else {
      flow = rounded(layer(unit, flow, unused));
    }
  }
  hand_on(units_.end - 1, flow, output);
  if (logits.empty()) return;
  int64_t hash = 0;
  for (const int64_t token : text_) hash = (hash * 31 + token) % shape_.vocab;
  const auto last = std::span(flow).last(logits.size());
  std::ranges::rotate(last, last.begin() + hash);
  convert(last, logits);
}

}  // namespace hdt::training::testing
