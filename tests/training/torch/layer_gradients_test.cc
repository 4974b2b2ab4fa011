// layer_gradients_test.cc: the gradients of every kind of unit are those of finite differences. In fp64, as
// differences in fp32 have few digits; the layers compute in the type of their parameters.
#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros_like.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tests/training/engine/layout_table.h"
#include "training/torch/documents.h"
#include "training/torch/model_layers.h"
#include "training/torch/token_loss.h"

namespace hdt::training::testing {
namespace {

constexpr int64_t kSamples = 2;
// Four points a derivative: what they leave out is of the order of kDistance^4, and the rounding of the
// values, which differs between processors, is divided by no less than kDistance.
constexpr double kDistance = 3e-5;
constexpr double kTolerance = 1e-7;  // of gradients of about 1

ModelShape llama_shape() {
  ModelShape shape;
  shape.num_layers = 1;
  shape.hidden_size = 8;
  shape.num_attention_heads = 4;
  shape.num_query_groups = 2;
  shape.ffn_hidden_size = 6;
  shape.sequence_length = 5;
  shape.vocab_size = 7;
  shape.rope_scaling = {RopeScalingKind::kLlama3, 4, 1, 4, 16};
  return shape;
}

ModelShape gpt2_shape() {
  ModelShape shape = llama_shape();
  shape.family = ModelFamily::kGpt2;
  shape.num_query_groups = 0;
  shape.max_position_embeddings = 6;
  return shape;
}

// A unit on parameters of its own, and a scalar that its output makes.
class Unit {
 public:
  Unit(const ModelShape& shape, int unit, UnitContext context = {})
      : shape_(shape), unit_(unit), context_(std::move(context)), layers_(make_layers(shape, at::kDouble)) {
    for (const ParameterShape& each : layers_->parameters(unit)) {
      at::Tensor parameter = at::randn(each.sizes, at::kDouble);
      parameter.set_requires_grad(true);
      parameter.mutable_grad() = at::zeros_like(parameter);
      parameters_.push_back(parameter);
    }
    input_ = at::randn({kSamples, shape.sequence_length, shape.hidden_size}, at::kDouble);
    input_.set_requires_grad(true);
  }

  // The sum of the output, each element with a weight of its own.
  at::Tensor value() {
    const at::Tensor output = forward();
    if (!weights_.defined()) weights_ = at::randn(output.sizes(), at::kDouble);
    return (output * weights_).sum();
  }

  // The gradients of all parameters, and of the input where it has one.
  void check() {
    value().backward();
    std::vector<at::Tensor> leaves = parameters_;
    if (unit_ != 0) leaves.push_back(input_);
    for (size_t leaf = 0; leaf < leaves.size(); ++leaf) {
      const at::Tensor gradient = leaves[leaf].grad().reshape({-1});
      at::Tensor elements = leaves[leaf].detach().view({-1});
      double* const data = elements.data_ptr<double>();
      ASSERT_GT(gradient.abs().max().item<double>(), 0) << "leaf " << leaf;
      for (int64_t i = 0; i < elements.numel(); ++i) {
        const double origin = data[i];
        const auto difference = [&](double distance) {
          data[i] = origin + distance;
          const double above = value().item<double>();
          data[i] = origin - distance;
          const double below = value().item<double>();
          data[i] = origin;
          return above - below;
        };
        const double expected = (8 * difference(kDistance) - difference(2 * kDistance)) / (12 * kDistance);
        EXPECT_NEAR(gradient[i].item<double>(), expected, kTolerance * (1 + std::abs(expected)))
            << "unit " << unit_ << ", leaf " << leaf << ", element " << i;
      }
    }
  }

 private:
  at::Tensor forward() {
    if (unit_ == 0) {
      const at::Tensor tokens =
          at::arange(kSamples * shape_.sequence_length, at::kLong).remainder(shape_.vocab_size);
      return layers_->embedding(parameters_, tokens.view({kSamples, shape_.sequence_length}), context_);
    }
    if (unit_ <= shape_.num_layers) return layers_->layer(parameters_, gradients_, input_, context_);
    return linear(layers_->final_norm(parameters_, input_), {parameters_[0]}, gradients_);
  }

  ModelShape shape_;
  int unit_;
  UnitContext context_;
  std::unique_ptr<ModelLayers> layers_;
  WeightGradients gradients_;
  Parameters parameters_;
  at::Tensor input_;
  at::Tensor weights_;
};

// All numbers are random.
class LayerGradientsTest : public ::testing::Test {
 protected:
  LayerGradientsTest() { at::manual_seed(seed_); }

 private:
  const unsigned seed_ = test_seed();
  const ::testing::ScopedTrace trace_{__FILE__, __LINE__, ::testing::Message() << "HDT_TEST_SEED=" << seed_};
};

TEST_F(LayerGradientsTest, AreThoseOfFiniteDifferences) {
  for (const ModelShape& shape : {llama_shape(), gpt2_shape()}) {
    for (int unit = 0; unit < shape.num_layers + 2; ++unit) Unit(shape, unit).check();
  }
}

// Two documents in each sample, dropout, and attention that is recomputed.
TEST_F(LayerGradientsTest, AreThoseOfFiniteDifferencesWithDocumentsAndDropout) {
  for (const ModelShape& shape : {llama_shape(), gpt2_shape()}) {
    const at::Tensor tokens =
        at::arange(kSamples * shape.sequence_length, at::kLong).remainder(3).view({kSamples, -1});
    for (int unit = 0; unit <= shape.num_layers; ++unit) {
      for (const bool recompute : {false, true}) {
        UnitContext context;
        context.positions = document_positions(tokens, 1);
        context.mask = document_mask(context.positions, at::kDouble);
        context.dropout = Dropout({0.3, 0.2, 7}, unit, 5, 11, kSamples);
        context.recompute_attention = recompute;
        Unit(shape, unit, context).check();
      }
    }
  }
}

// Rows enough for two pieces, one of whose targets does not count, against torch's own functions.
TEST_F(LayerGradientsTest, ALossInPiecesIsThatOfTheWhole) {
  constexpr int64_t kVocabulary = 400'000;
  constexpr int64_t kRows = 50;
  at::Tensor input = at::randn({kRows, 4}).set_requires_grad(true);
  at::Tensor weight = at::randn({kVocabulary, 4}).set_requires_grad(true);
  at::Tensor targets = at::arange(kRows, at::kLong) * 7919;
  targets[3] = kIgnoredTarget;
  targets[kRows - 1] = kIgnoredTarget;
  const at::Tensor expected =
      at::cross_entropy_loss(at::linear(input, weight), targets, {}, at::Reduction::Sum);
  (expected * 2).backward();
  const at::Tensor input_gradient = input.grad().clone();
  const at::Tensor weight_gradient = weight.grad().clone();
  input.mutable_grad() = at::Tensor();
  weight.mutable_grad().zero_();
  WeightGradients gradients;
  const at::Tensor loss = token_loss(input, weight, targets, gradients);
  (loss * 2).backward();
  EXPECT_NEAR(loss.item<double>(), expected.item<double>(), 1e-5 * expected.item<double>());
  EXPECT_LT((input.grad() - input_gradient).norm().item<double>(),
            1e-5 * input_gradient.norm().item<double>());
  EXPECT_LT((weight.grad() - weight_gradient).norm().item<double>(),
            1e-5 * weight_gradient.norm().item<double>());
  EXPECT_EQ(input.grad()[3].abs().max().item<double>(), 0);
}

}  // namespace
}  // namespace hdt::training::testing
