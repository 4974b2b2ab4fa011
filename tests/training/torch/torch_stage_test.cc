// torch_stage_test.cc: the torch model as the engine uses it.
#include "training/torch/torch_stage.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "tests/training/engine/training_run.h"
#include "tests/training/torch/small_stage.h"
#include "training/torch/tensor_names.h"

namespace hdt::training::testing {
namespace {

TEST(TorchStageTest, SizesAddUpToTheModel) {
  const ModelShape shape = small_shape();
  const auto whole = make_torch_stage(shape, {0, 6});
  int64_t elements = 0;
  for (int unit = 0; unit < 6; ++unit) elements += static_cast<int64_t>(elements_of(whole->tensors(unit)));
  EXPECT_EQ(elements, parameter_count(shape));
}

TEST(TorchStageTest, TensorsHaveTheirNamesAndShapesInHuggingFacesLlama) {
  const ModelShape shape = small_shape();
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const TensorInfo& tensor : model_tensors(shape)) {
    EXPECT_TRUE(shapes.emplace(tensor.name, tensor.shape).second) << tensor.name;
    EXPECT_EQ(tensor.weight_decay, tensor.shape.size() == 2) << tensor.name;
  }
  EXPECT_EQ(shapes.size(), 3U + 9U * shape.num_layers);
  using Sizes = std::vector<int64_t>;
  EXPECT_EQ(shapes["model.embed_tokens.weight"], (Sizes{29, 32}));
  EXPECT_EQ(shapes["lm_head.weight"], (Sizes{29, 32}));
  EXPECT_EQ(shapes["model.norm.weight"], (Sizes{32}));
  for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"})
    EXPECT_EQ(shapes["model.layers.0.self_attn." + std::string(projection) + ".weight"], (Sizes{32, 32}));
  EXPECT_EQ(shapes["model.layers.3.mlp.gate_proj.weight"], (Sizes{64, 32}));
  EXPECT_EQ(shapes["model.layers.3.mlp.up_proj.weight"], (Sizes{64, 32}));
  EXPECT_EQ(shapes["model.layers.3.mlp.down_proj.weight"], (Sizes{32, 64}));
  EXPECT_EQ(shapes["model.layers.3.input_layernorm.weight"], (Sizes{32}));
  EXPECT_EQ(shapes["model.layers.3.post_attention_layernorm.weight"], (Sizes{32}));
}

TEST(TorchStageTest, StartsNearTheLogarithmOfTheVocabulary) {
  const ModelShape shape = small_shape();
  Stage stage(shape, {0, 6}, 1);
  const LossSum loss = stage.compute->forward(0, {.samples = samples(shape, 4)}, {}, {});
  EXPECT_EQ(loss.tokens, 4 * shape.sequence_length);
  EXPECT_NEAR(loss.loss / loss.tokens, std::log(29.0), 0.1);
}

// Each unit's parameters are NaN until the stage asks for them.
TEST(TorchStageTest, NoUnitIsUsedBeforeItsParametersHaveCome) {
  const ModelShape shape = small_shape();
  const std::vector<int64_t> tokens = samples(shape, 2);
  Stage stage(shape, {0, 6}, 1);
  const double expected = stage.compute->forward(0, {.samples = tokens}, {}, {}).loss;
  const std::vector<std::vector<float>> parameters = stage.parameters;
  for (auto& unit : stage.parameters) std::ranges::fill(unit, std::nanf(""));
  int next = 0;
  const auto come = [&](int unit) {
    EXPECT_EQ(unit, next++);
    std::ranges::copy(parameters[unit], stage.parameters[unit].begin());
  };
  EXPECT_EQ(stage.compute->forward(0, {.samples = tokens, .unit_needed = come}, {}, {}).loss, expected);
  EXPECT_EQ(next, 6);
}

TEST(TorchStageTest, GradientIsTheDerivativeOfTheLoss) {
  const ModelShape shape = small_shape();
  Stage stage(shape, {0, 6}, 1);
  // Away from the flat start values, so that differences stand out from rounding.
  for (auto& unit : stage.parameters) {
    for (float& value : unit) value *= 3;
  }
  const std::vector<int64_t> tokens = samples(shape, 2);
  stage.compute->forward(0, {.samples = tokens}, {}, {});
  stage.compute->backward(0, {}, {}, [](int) {});
  for (int unit = 0; unit < 6; ++unit) {
    // Along the gradient itself the loss changes by the gradient's norm.
    const std::vector<float> gradient = stage.gradients[unit];
    const double norm =
        std::sqrt(std::inner_product(gradient.begin(), gradient.end(), gradient.begin(), 0.0));
    ASSERT_GT(norm, 0);
    const double distance = 1e-3;
    const std::vector<float> origin = stage.parameters[unit];
    const auto loss_at = [&](double along) {
      for (size_t i = 0; i < origin.size(); ++i) {
        stage.parameters[unit][i] = static_cast<float>(origin[i] + along * gradient[i] / norm);
      }
      return stage.compute->forward(0, {.samples = tokens}, {}, {}).loss;
    };
    const double slope = (loss_at(distance) - loss_at(-distance)) / (2 * distance);
    stage.parameters[unit] = origin;
    EXPECT_NEAR(slope, norm, 0.02 * norm) << "unit " << unit;
  }
}

TEST(TorchStageTest, GradientsAddUpAndUnitsFinishLastFirst) {
  const ModelShape shape = small_shape();
  Stage stage(shape, {0, 6}, 1);
  const std::vector<int64_t> tokens = samples(shape, 2);
  std::vector<int> order;
  const auto pass = [&] {
    order.clear();
    stage.compute->forward(0, {.samples = tokens}, {}, {});
    stage.compute->backward(0, {}, {}, [&](int unit) { order.push_back(unit); });
  };
  pass();
  EXPECT_EQ(order, (std::vector<int>{5, 4, 3, 2, 1, 0}));
  const auto once = stage.gradients;
  pass();
  for (size_t unit = 0; unit < once.size(); ++unit) {
    for (size_t i = 0; i < once[unit].size(); ++i)
      EXPECT_FLOAT_EQ(stage.gradients[unit][i], 2 * once[unit][i]);
  }
}

// The gradients in bf16 are those of the same parameters in fp32, to what 8 digits allow, for both families
// and both types of gradients; two micro-batches add up.
TEST(TorchStageTest, GradientsInBf16AreThoseInFp32ToRounding) {
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    ModelShape shape = small_shape();
    shape.family = family;
    const std::vector<int64_t> tokens = samples(shape, 3);
    const auto pass = [&](StageCompute& compute) {
      LossSum loss;
      for (int i = 0; i < 2; ++i) {
        loss = compute.forward(0, {.samples = tokens}, {}, {});
        compute.backward(0, {}, {}, [](int) {});
      }
      return loss;
    };
    for (const NumberType type : {NumberType::kBFloat16, NumberType::kFloat32}) {
      Stage whole(shape, {0, 6}, 1);
      const auto compute =
          make_torch_stage(shape, {0, 6}, {.recomputed_layers = 1, .type = NumberType::kBFloat16});
      std::vector<std::vector<BFloat16>> parameters;
      std::vector<std::vector<std::byte>> gradients;
      const auto gradients_of = [&](int unit) {
        return TypedSpan(type, gradients[unit].data(), parameters[unit].size());
      };
      for (int unit = 0; unit < 6; ++unit) {
        parameters.emplace_back(elements_of(compute->tensors(unit)));
        gradients.emplace_back(parameters[unit].size() * bytes_of(type));
        compute->bind(unit, parameters[unit], gradients_of(unit));
        compute->initialize(unit, 1);
        // Start values are those of fp32, rounded.
        for (size_t i = 0; i < parameters[unit].size(); ++i) {
          EXPECT_EQ(parameters[unit][i].bits, BFloat16(whole.parameters[unit][i]).bits);
          whole.parameters[unit][i] = static_cast<float>(parameters[unit][i]);
        }
      }
      const LossSum expected = pass(*whole.compute);
      const LossSum found = pass(*compute);
      EXPECT_EQ(found.tokens, expected.tokens);
      EXPECT_NEAR(found.loss, expected.loss, 0.005 * expected.loss);
      for (int unit = 0; unit < 6; ++unit) {
        std::vector<float> own(parameters[unit].size());
        convert(gradients_of(unit), own);
        double difference = 0;
        double square = 0;
        for (size_t i = 0; i < own.size(); ++i) {
          difference += std::pow(double{own[i]} - whole.gradients[unit][i], 2);
          square += std::pow(double{whole.gradients[unit][i]}, 2);
        }
        EXPECT_GT(square, 0);
        EXPECT_LT(std::sqrt(difference / square), 0.03) << "unit " << unit;
      }
    }
  }
}

// The two parts make the same bits as the whole, for the stage before as for the weights, also with several
// micro-batches between their parts.
TEST(TorchStageTest, ABackwardInTwoPartsMakesTheSameBits) {
  const ModelShape shape = small_shape();
  const std::vector<int64_t> tokens[] = {samples(shape, 2), samples(shape, 3)};
  struct Gradients {
    std::vector<std::vector<float>> parameters;
    std::vector<std::vector<float>> input;
    std::vector<int> order;
    bool operator==(const Gradients&) const = default;
  };
  // The first units, layers between two stages, and the last units.
  for (const UnitRange units : {UnitRange{0, 3}, UnitRange{2, 4}, UnitRange{4, 6}}) {
    const auto run = [&](bool split) {
      Stage stage(shape, units, 1);
      Gradients made;
      const auto done = [&](int unit) { made.order.push_back(unit); };
      std::vector<std::vector<float>> input, output_gradient;
      for (int slot = 0; slot < 2; ++slot) {
        const size_t rows = tokens[slot].size() / (shape.sequence_length + 1) * shape.sequence_length;
        const size_t elements = stage.compute->activation_elements(0, rows);
        std::vector<float> activation(elements), gradient(elements);
        for (size_t i = 0; i < elements; ++i) {
          activation[i] = std::sin(static_cast<float>(i));
          gradient[i] = std::cos(static_cast<float>(i));
        }
        if (units.first == 0) activation.clear();
        if (units.end == 6) gradient.clear();
        input.push_back(activation);
        output_gradient.push_back(gradient);
        made.input.emplace_back(activation.size());
        std::vector<float> output(gradient.size());
        stage.compute->forward(slot, {.samples = tokens[slot]}, input[slot], output);
      }
      if (!split) {
        for (int slot = 0; slot < 2; ++slot)
          stage.compute->backward(slot, output_gradient[slot], made.input[slot], done);
      } else {
        for (int slot = 0; slot < 2; ++slot)
          stage.compute->backward_input(slot, output_gradient[slot], made.input[slot]);
        EXPECT_TRUE(made.order.empty());
        for (int slot = 0; slot < 2; ++slot) stage.compute->backward_weights(slot, done);
      }
      made.parameters = stage.gradients;
      return made;
    };
    const Gradients whole = run(false);
    EXPECT_EQ(run(true), whole) << "units from " << units.first;
    EXPECT_EQ(whole.order.size(), 2 * static_cast<size_t>(units.size()));
  }
}

// A vocabulary whose logits are computed in pieces for six samples, and at once for three. The loss behind
// some tokens may be masked.
void expect_pieces_are_the_whole(bool masked) {
  ModelShape shape = small_shape();
  shape.num_layers = 1;
  shape.hidden_size = 4;
  shape.num_attention_heads = 2;
  shape.vocab_size = 200'000;
  const std::vector<int64_t> tokens = samples(shape, 6);
  if (masked) shape.masked_after = tokens[2];
  const auto half = static_cast<std::ptrdiff_t>(tokens.size() / 2);
  Stage pieces(shape, {0, 3}, 1);
  Stage parts(shape, {0, 3}, 1);
  const LossSum loss = pieces.compute->forward(0, {.samples = tokens}, {}, {});
  pieces.compute->backward(0, {}, {}, [](int) {});
  double expected = 0;
  for (const std::span<const int64_t> part : {std::span(tokens).first(half), std::span(tokens).last(half)}) {
    expected += parts.compute->forward(0, {.samples = part}, {}, {}).loss;
    parts.compute->backward(0, {}, {}, [](int) {});
  }
  EXPECT_NEAR(loss.loss, expected, 1e-6 * expected);
  if (masked) {
    EXPECT_LT(loss.tokens, 6 * shape.sequence_length);
  } else {
    EXPECT_EQ(loss.tokens, 6 * shape.sequence_length);
  }
  for (size_t unit = 0; unit < pieces.gradients.size(); ++unit) {
    double difference = 0;
    double norm = 0;
    for (size_t i = 0; i < pieces.gradients[unit].size(); ++i) {
      const double other = parts.gradients[unit][i];
      norm += other * other;
      difference += (pieces.gradients[unit][i] - other) * (pieces.gradients[unit][i] - other);
    }
    EXPECT_GT(norm, 0) << "unit " << unit;
    EXPECT_LT(difference, 1e-10 * norm) << "unit " << unit;
  }
  // In two parts: the same bits.
  Stage split(shape, {0, 3}, 1);
  split.compute->forward(0, {.samples = tokens}, {}, {});
  split.compute->backward_input(0, {}, {});
  split.compute->backward_weights(0, [](int) {});
  EXPECT_EQ(split.gradients, pieces.gradients);
}

TEST(TorchStageTest, LossAndGradientsInPiecesAreThoseOfTheWhole) { expect_pieces_are_the_whole(false); }
TEST(TorchStageTest, MaskedTokensInPiecesAreThoseOfTheWhole) { expect_pieces_are_the_whole(true); }

TEST(TorchStageTest, TokensDoNotSeeTheFuture) {
  const ModelShape shape = small_shape();
  Stage stage(shape, {0, 5}, 1);  // without the head: what leaves the last layer
  std::vector<int64_t> tokens = samples(shape, 1);
  const auto hidden = static_cast<size_t>(shape.hidden_size);
  std::vector<float> before(stage.compute->activation_elements(4, shape.sequence_length)),
      after(before.size());
  stage.compute->forward(0, {.samples = tokens}, {}, before);
  tokens[10] = (tokens[10] + 1) % shape.vocab_size;
  stage.compute->forward(0, {.samples = tokens}, {}, after);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 10 * hidden, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + 10 * hidden, before.end(), after.begin() + 10 * hidden));
}

TEST(TorchStageTest, InferenceAgreesWithTraining) {
  const ModelShape shape = small_shape();
  Stage stage(shape, {0, 6}, 1);
  const std::vector<int64_t> tokens = samples(shape, 1);
  double loss = 0;
  std::vector<float> logits(shape.vocab_size);
  for (int64_t seen = 1; seen <= shape.sequence_length; ++seen) {
    stage.compute->infer(std::span(tokens).first(seen), 0, {}, {}, logits);
    double total = 0;
    for (const float logit : logits) total += std::exp(double{logit});
    loss += std::log(total) - logits[tokens[seen]];
  }
  EXPECT_NEAR(stage.compute->forward(0, {.samples = tokens}, {}, {}).loss, loss, 1e-4 * loss);
}

TEST(TorchStageTest, StartValuesDependOnSeedAndUnitOnly) {
  const ModelShape shape = small_shape();
  const Stage whole(shape, {0, 6}, 9);
  const Stage part(shape, {2, 4}, 9);
  EXPECT_EQ(part.parameters[0], whole.parameters[2]);
  EXPECT_EQ(part.parameters[1], whole.parameters[3]);
  EXPECT_NE(whole.parameters[2], whole.parameters[3]);
  EXPECT_NE(Stage(shape, {2, 4}, 10).parameters[0], part.parameters[0]);
}

std::vector<StepResult> train_torch(const Layout& layout, int64_t steps,
                                    const ModelShape& shape = small_shape(),
                                    NumberType type = NumberType::kFloat32) {
  ThreadWorld world(layout);
  std::vector<StepResult> results;
  TrainerOptions options;
  options.seed = 11;
  options.learning_rate = {.peak = 3e-3, .minimum = 3e-4, .warmup_steps = 5, .total_steps = steps};
  options.bucket_elements = 10000;
  run_ranks(layout.world_size(), [&](int rank) {
    const auto compute = make_torch_stage(shape, layout.units_of(layout.position_of(rank)), {.type = type});
    const auto messenger = world.messenger(rank);
    auto trainer = make_trainer(layout, shape.vocab_size, *compute, *messenger, options);
    ASSERT_TRUE(trainer.is_ok()) << trainer.status().message();
    for (int64_t step = 0; step < steps; ++step) {
      const Result<StepResult> done = trainer.value()->step(step);
      ASSERT_TRUE(done.is_ok()) << done.status().message();
      if (rank == 0) results.push_back(done.value());
    }
  });
  return results;
}

TEST(TorchStageTest, HeterogeneousRunEqualsOneProcess) {
  set_torch_threads(1);
  const std::vector<StepResult> one = train_torch(Layout(4, {{{4}, 16, 1}}, RankOrder::kTpDpPp), 50);
  ASSERT_EQ(one.size(), 50U);
  // The second one has stages with the embedding or the head alone.
  for (const Layout& layout : {Layout(4, {{{3, 1}, 3, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp),
                               Layout(4, {{{0, 4, 0}, 3, 4}, {{4, 0}, 2, 2}}, RankOrder::kTpPpDp)}) {
    const std::vector<StepResult> unequal = train_torch(layout, 50);
    ASSERT_EQ(unequal.size(), 50U);
    for (size_t step = 0; step < one.size(); ++step) {
      EXPECT_NEAR(unequal[step].loss, one[step].loss, 1e-5 * one[step].loss) << "step " << step;
    }
  }
  EXPECT_LT(one.back().loss, 0.8 * one.front().loss);
}

// The matrix of embedding and head is on the first stage and on the last one.
TEST(TorchStageTest, ATiedHeadOnTwoStagesTrainsAsOnOne) {
  set_torch_threads(1);
  for (const ModelFamily family : {ModelFamily::kLlama, ModelFamily::kGpt2}) {
    ModelShape shape = small_shape();
    shape.family = family;
    shape.tied_head = true;
    for (const NumberType type : {NumberType::kFloat32, NumberType::kBFloat16}) {
      const double tolerance = type == NumberType::kFloat32 ? 1e-5 : 5e-3;
      const auto one =
          train_torch(Layout(4, {{{4}, 16, 1}}, RankOrder::kTpDpPp).with_tied_unit(), 12, shape, type);
      const auto four = train_torch(
          Layout(4, {{{3, 1}, 3, 4}, {{2, 2}, 2, 2}}, RankOrder::kTpPpDp).with_tied_unit(), 12, shape, type);
      ASSERT_EQ(one.size(), 12U);
      ASSERT_EQ(four.size(), 12U);
      for (size_t step = 0; step < one.size(); ++step) {
        EXPECT_NEAR(four[step].loss, one[step].loss, tolerance * one[step].loss) << "step " << step;
        EXPECT_NEAR(four[step].gradient_norm, one[step].gradient_norm,
                    10 * tolerance * one[step].gradient_norm);
      }
      EXPECT_LT(one.back().loss, 0.97 * one.front().loss);
    }
  }
}

}  // namespace
}  // namespace hdt::training::testing
