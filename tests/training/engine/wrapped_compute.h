// wrapped_compute.h: a stage that hands every call on to another one. Tests override what they change.
#pragma once

#include "tests/training/engine/fake_compute.h"

namespace hdt::training::testing {

// Used by the thread of the stage that it wraps, which must outlive it.
class WrappedCompute : public StageCompute {
 public:
  explicit WrappedCompute(FakeCompute& compute) : compute_(compute) {}

  NumberType type() const override { return compute_.type(); }
  UnitRange units() const override { return compute_.units(); }
  std::vector<TensorInfo> tensors(int unit) const override { return compute_.tensors(unit); }
  void bind(int unit, TypedSpan parameters, TypedSpan gradients) override {
    compute_.bind(unit, parameters, gradients);
  }
  void initialize(int unit, uint64_t seed) override { compute_.initialize(unit, seed); }
  bool reads_tokens() const override { return compute_.reads_tokens(); }
  int sequence_length() const override { return compute_.sequence_length(); }
  size_t activation_elements(int unit, size_t tokens) const override {
    return compute_.activation_elements(unit, tokens);
  }
  LossSum forward(int slot, const MicroBatch& batch, ConstTypedSpan input, TypedSpan output) override {
    return compute_.forward(slot, batch, input, output);
  }
  void backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                const UnitDone& unit_done) override {
    compute_.backward(slot, output_gradient, input_gradient, unit_done);
  }
  bool has_split_backward() const override { return compute_.has_split_backward(); }
  void backward_input(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient) override {
    compute_.backward_input(slot, output_gradient, input_gradient);
  }
  void backward_weights(int slot, const UnitDone& unit_done) override {
    compute_.backward_weights(slot, unit_done);
  }

 private:
  FakeCompute& compute_;
};

}  // namespace hdt::training::testing
