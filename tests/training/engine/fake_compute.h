// fake_compute.h: a small model in plain C++, gradients written by hand: enough to test the engine without
// torch.
//
// Embedding, then layers y = x + tanh(x W + b), then softmax cross entropy of x H; every token on its own.
// When it generates text, the logits depend on all tokens of the text, so that one that is lost or comes
// twice shows.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "training/engine/compute.h"
#include "training/engine/model_chunks.h"

namespace hdt::training::testing {

struct FakeShape {
  int num_layers = 4;
  int hidden = 8;
  int vocab = 17;
  int sequence_length = 6;
  // Numbers for each token that units with even numbers hand on beside `hidden`: NaN, which nobody may use.
  int padding = 0;
  // The type of parameters and activations. The computation is in double, and rounded where a
  // unit hands it on. So the bits do not depend on which units are on one stage.
  NumberType type = NumberType::kFloat32;
  bool reads_tokens = false;  // on every stage
  bool tied = false;          // the head's matrix is the embedding's
};

class FakeCompute final : public TextCompute {
 public:
  FakeCompute(const FakeShape& shape, UnitRange units) : shape_(shape), units_(units) {}

  NumberType type() const override { return shape_.type; }
  UnitRange units() const override { return units_; }
  bool has_tied_unit() const override {
    return shape_.tied && (units_.contains(0) || is_head(units_.end - 1));
  }
  std::vector<TensorInfo> tensors(int unit) const override;
  void bind(int unit, TypedSpan parameters, TypedSpan gradients) override;
  void initialize(int unit, uint64_t seed) override;
  int sequence_length() const override { return shape_.sequence_length; }
  int64_t vocab_size() const override { return shape_.vocab; }
  size_t activation_elements(int unit, size_t tokens) const override { return tokens * handed_on(unit); }
  LossSum forward(int slot, const MicroBatch& batch, ConstTypedSpan input, TypedSpan output) override;
  LossSum evaluate(std::span<const int64_t> samples, ConstTypedSpan input, TypedSpan output) override;
  void backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                const UnitDone& unit_done) override;
  bool has_split_backward() const override { return true; }
  void backward_input(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient) override;
  void backward_weights(int slot, const UnitDone& unit_done) override;
  void infer(std::span<const int64_t> tokens, int64_t position, ConstTypedSpan input, TypedSpan output,
             std::span<float> logits) override;

  int greatest_in_flight() const { return greatest_in_flight_; }
  bool reads_tokens() const override { return shape_.reads_tokens; }
  // Step and first sample of each forward(), in order.
  const std::vector<std::pair<int64_t, int64_t>>& computed() const { return computed_; }
  // The number of tokens that each forward() of a step or an evaluation was given.
  const std::vector<size_t>& tokens_given() const { return tokens_given_; }

 private:
  struct Unit {
    TypedSpan parameters;
    TypedSpan gradients;
  };
  using Rows = std::vector<double>;  // hidden numbers a token
  struct Saved {
    std::vector<int64_t> inputs;   // tokens, first stage
    std::vector<int64_t> targets;  // tokens, last stage
    std::vector<Rows> flow;        // what enters each unit; for layers also
    std::vector<Rows> hyperbolic;  // tanh(x W + b)
    double loss_factor = 1;
    Rows probabilities;           // vocab numbers a token
    std::vector<Rows> gradients;  // that of what each unit hands on, between the parts of a backward
  };

  size_t handed_on(int unit) const { return shape_.hidden + (unit % 2 == 0 ? shape_.padding : 0); }
  // Converts the values that `unit` has handed on, by leaving out the padding; hand_on() is the way back.
  Rows received(int unit, ConstTypedSpan values) const;
  void hand_on(int unit, const Rows& flow, TypedSpan to) const;
  // The unit whose parameters and gradients this one uses: itself, or that of the matrix which embedding and
  // head share.
  int bound_unit(int unit) const { return shape_.tied && (unit == 0 || is_head(unit)) ? kTiedUnit : unit; }
  Rows weights_of(int unit) const { return rows_of(bound_.at(bound_unit(unit)).parameters); }
  static Rows rows_of(ConstTypedSpan values);
  // The values as another stage would get them.
  Rows rounded(const Rows& values) const;
  bool is_head(int unit) const { return unit == shape_.num_layers + 1; }
  Rows embed(std::span<const int64_t> tokens);
  Rows layer(int unit, const Rows& in, Rows& hyperbolic);
  Rows head(int unit, const Rows& in);
  static double inner(const Rows& hyperbolic, const Rows& gradient, size_t at);
  double logit_gradient(const Saved& saved, size_t token, int v) const;
  // `gradient` is that of what the unit hands on; the head's is 1.
  Rows input_gradient_of(int unit, const Saved& saved, const Rows& gradient);
  void add_weight_gradient(int unit, const Saved& saved, const Rows& gradient);

  FakeShape shape_;
  UnitRange units_;
  std::map<int, Unit> bound_;
  std::vector<int64_t> text_;  // what infer() was given
  std::map<int, Saved> slots_;
  int greatest_in_flight_ = 0;
  std::vector<std::pair<int64_t, int64_t>> computed_;
  std::vector<size_t> tokens_given_;
};

// The computes of a rank's chunks.
class FakeChunks {
 public:
  FakeChunks(const FakeShape& shape, const Layout& layout, int rank) {
    for (const UnitRange& range : layout.ranges_of(rank)) {
      owned_.push_back(std::make_unique<FakeCompute>(shape, range));
      pointers_.push_back(owned_.back().get());
    }
  }
  ChunksOf<TextCompute> computes() const { return ChunksOf<TextCompute>(pointers_); }
  // The most micro-batches that any chunk has had in flight.
  int greatest_in_flight() const {
    int greatest = 0;
    for (const auto& compute : owned_) greatest = std::max(greatest, compute->greatest_in_flight());
    return greatest;
  }

 private:
  std::vector<std::unique_ptr<FakeCompute>> owned_;
  std::vector<TextCompute*> pointers_;
};

}  // namespace hdt::training::testing
