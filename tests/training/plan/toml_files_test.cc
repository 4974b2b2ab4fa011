// toml_files_test.cc: what is written reads back the same; what is wrong is refused with file, field and
// reason.
#include "training/plan/describe/toml_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/data/temporary_folder.h"
#include "tests/training/plan/examples.h"

namespace hdt::plan {
namespace {

using ::testing::EndsWith;
using ::testing::StartsWith;
using training::TemporaryFolder;

class TomlFiles : public ::testing::Test {
 protected:
  std::string file(const std::string& text) {
    path_ = folder_.file("input.toml");
    training::write_all(path_, text);
    return path_;
  }
  // Without the file's name, which must come first.
  template <typename T>
  std::string reason(const Result<T>& result) {
    EXPECT_FALSE(result.is_ok());
    const std::string message = result.status().message();
    EXPECT_THAT(message, StartsWith(path_ + ": "));
    return message.substr(std::min(message.size(), path_.size() + 2));
  }

  const TemporaryFolder folder_;
  std::string path_;
};

std::string replaced(std::string text, const std::string& what, const std::string& with) {
  const size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return at == std::string::npos ? text : text.replace(at, what.size(), with);
}

TEST_F(TomlFiles, ReadBackTheSame) {
  const std::string model = to_toml(example_model());
  EXPECT_EQ(to_toml(read_model(file(model)).value()), model);
  Model tied = example_model();
  tied.tied_parameter_bytes = {{1, 6 << 20}, {2, 3 << 20}};
  tied.optimizer_factor = 3;
  EXPECT_EQ(to_toml(read_model(file(to_toml(tied))).value()), to_toml(tied));
  using training::NumberType;
  for (const training::NumberTypes& types :
       {training::NumberTypes{NumberType::kBFloat16, NumberType::kFloat32},
        training::NumberTypes{NumberType::kFloat16, NumberType::kFloat16},
        training::NumberTypes{NumberType::kFloat64, NumberType::kFloat64}}) {
    tied.types = types;
    const Model read_types = read_model(file(to_toml(tied))).value();
    EXPECT_EQ(read_types.types, types);
    EXPECT_EQ(read_types.gradient_factor(), types.parameters == NumberType::kBFloat16 ? 2 : 1);
  }
  Profile profile = example_profile();
  profile.compute.begin()->second.forward = 1.0 / 3;
  profile.compute.begin()->second.recomputed_attention = {1.0 / 7, 3};
  profile.links.begin()->second.allreduce = {{1e3, 1e8}, {1e6, 5e8}};
  profile.overlap_slowdown = 1.25;
  profile.overlap_slowdowns = {{"fast", 1.5}, {"slow", 1}};
  profile.fixed_bytes = {{"fast", 1 << 30}, {"slow", 5}};
  profile.collective = {1e-6, 2e9, 3e9, 4096};
  const Profile read = read_profile(file(to_toml(profile))).value();
  EXPECT_EQ(read.compute, profile.compute);
  EXPECT_EQ(read.links, profile.links);
  EXPECT_EQ(read.collective, profile.collective);
  EXPECT_EQ(read.overlap_slowdown, 1.25);
  EXPECT_EQ(read.overlap_slowdowns, profile.overlap_slowdowns);
  EXPECT_EQ(read.fixed_bytes, profile.fixed_bytes);
  const std::string cluster = to_toml(example_cluster());
  EXPECT_EQ(to_toml(read_cluster(file(cluster)).value()), cluster);
  Plan plan = example_plan();
  plan.replicas[0].stages[0].node = "with \"quotes\" and \\";
  plan.runtime = {ScheduleKind::kLockstep, 4096, false, 1000, ReductionKind::kHdt, true};
  plan.replicas[1].stages[0].optimizer_shard_weight = 1.0 / 3;
  plan.replicas[1].stages[1].recomputed_layers = 2;
  plan.replicas[1].stages[1].attention_only = true;
  EXPECT_EQ(read_plan(file(to_toml(plan))).value(), plan);
  plan.runtime.background_send_bytes.reset();
  plan.runtime.lockstep_exchange = true;
  EXPECT_EQ(read_plan(file(to_toml(plan))).value(), plan);
  EXPECT_EQ(reason(read_plan(file("background_send_bytes = 0\n" + to_toml(plan)))),
            "background_send_bytes: given beside lockstep_exchange, in which no send is in the background");
}

TEST_F(TomlFiles, NodesThatAreAlikeAreCounted) {
  const auto cluster =
      read_cluster(file("[[node]]\nname='n'\ndevice='d'\ndevices=8\nmemory_bytes=1\ncount=3\n"));
  ASSERT_TRUE(cluster.is_ok());
  ASSERT_EQ(cluster.value().nodes.size(), 3u);
  EXPECT_EQ(cluster.value().nodes[2].name, "n-3");
}

TEST_F(TomlFiles, AShortFileCannotDescribeMoreNodesThanMemoryHolds) {
  const std::string half = "[[node]]\nname='n'\ndevice='d'\ndevices=8\nmemory_bytes=1\ncount=8192\n";
  const std::string other = "[[node]]\nname='m'\ndevice='d'\ndevices=8\nmemory_bytes=1\ncount=8192\n";
  const auto full = read_cluster(file(half + other));
  ASSERT_TRUE(full.is_ok()) << full.status().message();
  EXPECT_EQ(full.value().nodes.size(), 16'384U);
  const auto more =
      read_cluster(file(half + other + "[[node]]\nname='x'\ndevice='d'\ndevices=8\nmemory_bytes=1\n"));
  EXPECT_EQ(more.status().code(), Code::kConfig);
  EXPECT_THAT(more.status().message(), ::testing::HasSubstr("1 given, expected at most 16384 nodes in all"));
}

TEST_F(TomlFiles, TimesMustBePositive) {
  const std::string good = to_toml(example_profile());
  for (const char* field : {"forward", "input_gradient", "weight_gradient", "update"}) {
    for (const char* value : {"0", "-0.5", "nan", "'1'"}) {
      const size_t at = good.find(std::string(field) + " = ");
      const size_t end = good.find('\n', at);
      const std::string bad = good.substr(0, at) + field + " = " + value + good.substr(end);
      EXPECT_THAT(reason(read_profile(file(bad))), StartsWith(std::string("compute 1.") + field + ": "));
    }
  }
  EXPECT_EQ(reason(read_profile(file(replaced(good, "latency = 0", "latency = -1")))),
            "link 1.latency: -1 given, expected at least 0");
}

TEST_F(TomlFiles, RecomputedAttentionIsWholeOrLeftOut) {
  const std::string good = to_toml(example_profile());
  const auto with = [&](const std::string& fields) {
    const std::string bytes = "activation_bytes = 16777216\n";
    return reason(read_profile(file(replaced(good, bytes, bytes + fields))));
  };
  EXPECT_EQ(with("selective_more_seconds = 0.1\n"),
            "compute 7.selective_activation_bytes: none given, expected one beside selective_more_seconds");
  EXPECT_EQ(with("selective_activation_bytes = 1\n"),
            "compute 7.selective_more_seconds: none given, expected one beside selective_activation_bytes");
  EXPECT_EQ(
      with("selective_more_seconds = 0.1\nselective_activation_bytes = 16777217\n"),
      "compute 7.selective_activation_bytes: 16777217 given, expected at most activation_bytes, 16777216");
  EXPECT_THAT(with("selective_more_seconds = -1\nselective_activation_bytes = 1\n"),
              StartsWith("compute 7.selective_more_seconds: "));
  const std::string plan = to_toml(example_plan());
  EXPECT_EQ(
      reason(read_plan(file(replaced(plan, "layers = 3\n", "layers = 3\nrecompute_granularity = 'some'\n")))),
      "replica 1.stage 1.recompute_granularity: 'some' given, expected full or selective");
  EXPECT_THAT(
      reason(read_plan(
          file(replaced(plan, "layers = 3\n", "layers = 3\nrecompute_granularity = 'selective'\n")))),
      StartsWith("replica 1.stage 1.recompute_granularity: 'selective' given, but no layer is recomputed"));
}

TEST_F(TomlFiles, UnknownMissingAndRepeatedFieldsAreNamed) {
  EXPECT_EQ(reason(read_plan(file("colour = 1\n" + to_toml(example_plan())))), "colour: unknown field");
  EXPECT_EQ(reason(read_plan(file(replaced(to_toml(example_plan()), "micro_batches = 4\n", "")))),
            "replica 1.micro_batches: is missing");
  EXPECT_EQ(reason(read_plan(file(replaced(to_toml(example_plan()), "layers = 3", "layers = -1")))),
            "replica 1.stage 1.layers: -1 given, expected at least 0");
  EXPECT_EQ(
      reason(read_plan(file(replaced(to_toml(example_plan()), "\"1f1b\"", "\"1f1c\"")))),
      "schedule: '1f1c' given, expected gpipe, 1f1b, eager-1f1b, 1f1b-lockstep, zero-bubble or interleaved");
  EXPECT_EQ(reason(read_plan(file(replaced(to_toml(example_plan()), "\"ring\"", "\"tree\"")))),
            "reduction: 'tree' given, expected hdt or ring");
  EXPECT_EQ(
      reason(read_profile(file(replaced(to_toml(example_profile()), "slowdown = 1", "slowdown = 0.5")))),
      "overlap_slowdown: 0.5 given, expected at least 1");
  EXPECT_EQ(reason(read_cluster(file("node = 1\n"))), "node: expected [[node]] tables");
  const std::string profile = to_toml(example_profile());
  const size_t second = profile.find("\n[[compute]]", profile.find("[[compute]]") + 1);
  const size_t first = profile.find("\n[[compute]]");
  EXPECT_THAT(reason(read_profile(file(profile + profile.substr(first, second - first)))),
              EndsWith("this layer was given before"));
  EXPECT_EQ(reason(read_model(file(replaced(to_toml(example_model()), "\"head\"", "\"block\"")))),
            "layer.kind: 'block' given twice");
}

// A profile's tables by kind of device: [[table]] with one field, whose smallest value is 1.
TEST_F(TomlFiles, TablesOfDevicesAreChecked) {
  const std::string profile = to_toml(example_profile());
  const auto expect_checked = [&](const std::string& table, const std::string& field, const std::string& good,
                                  const std::string& small) {
    const auto of = [&](const std::string& device, const std::string& value) {
      return "[[" + table + "]]\ndevice = '" + device + "'\n" + field + " = " + value + "\n";
    };
    const auto read = [&](const std::string& tables) { return read_profile(file(profile + tables)); };
    EXPECT_TRUE(read(of("fast", good)).is_ok());
    EXPECT_EQ(reason(read(of("fast", small))),
              table + " 1." + field + ": " + small + " given, expected at least 1");
    EXPECT_EQ(reason(read(of("quick", good))),
              table + " 1.device: 'quick' given, but no [[compute]] is of this device");
    EXPECT_EQ(reason(read(of("fast", good) + of("fast", good))),
              table + " 2.device: this device was given before");
  };
  expect_checked("overlap", "slowdown", "1.5", "0.9");
  expect_checked("memory", "fixed_bytes", "7", "-1");
}

TEST_F(TomlFiles, TypesOfNumbersMustExistAndGoTogether) {
  const std::string model = to_toml(example_model());
  const auto reason_of = [&](const std::string& fields) { return reason(read_model(file(fields + model))); };
  EXPECT_EQ(reason_of("parameter_type = \"fp8\"\n"),
            "parameter_type: 'fp8' given, expected fp32, bf16, fp16 or fp64");
  EXPECT_EQ(reason_of("gradient_type = \"bf16\"\n"),
            "gradient_type: bf16 given, expected fp32 or that of the parameters (fp32)");
  EXPECT_EQ(reason_of("parameter_type = \"fp64\"\ngradient_type = \"fp32\"\n"),
            "gradient_type: fp32 given, expected fp64 or that of the parameters (fp64)");
  // Gradients are of the parameters' type if nothing else is said.
  EXPECT_EQ(read_model(file("parameter_type = \"fp16\"\n" + model)).value().types.gradients,
            training::NumberType::kFloat16);
}

TEST_F(TomlFiles, SumsOfTensorParallelGroupsAreIntegersAndFew) {
  Model model = example_model();
  model.layers[1].forward_sums = {1 << 20, 2 << 20};
  model.layers[2].backward_sums = {3};
  const std::string good = to_toml(model);
  const Result<Model> same = read_model(file(good));
  ASSERT_TRUE(same.is_ok()) << same.status().message();
  EXPECT_EQ(to_toml(same.value()), good);
  EXPECT_EQ(same.value().layers[1].forward_sums, model.layers[1].forward_sums);
  EXPECT_EQ(same.value().layers[2].backward_sums, model.layers[2].backward_sums);
  std::string many = "[1";
  for (int sum = 0; sum < 64; ++sum) many += ", 1";
  for (const std::string& bad : {std::string("[]"), std::string("1"), std::string("[0]"), std::string("[-1]"),
                                 std::string("[1.5]"), std::string("['1']"), many + "]"})
    EXPECT_EQ(reason(read_model(file(replaced(good, "[1048576, 2097152]", bad)))),
              "layer 2.forward_sums: expected a list of 1 to 64 integers of at least 1");
}

TEST_F(TomlFiles, BandwidthPointsIncrease) {
  const std::string good = to_toml(example_profile());
  for (const char* bad : {"[]", "[[1, 2], [1, 3]]", "[[0, 2]]", "[[1, -2]]", "[[1]]", "5", "[['1', 2]]",
                          // No double is this integer.
                          "[[2888888888888888889, 2]]", "[[1, 9007199254740993]]"}) {
    const size_t at = good.find("bandwidth = ");
    const std::string text = good.substr(0, at) + "bandwidth = " + bad + good.substr(good.find('\n', at));
    EXPECT_THAT(reason(read_profile(file(text))), StartsWith("link 1.bandwidth: expected a list of pairs"));
  }
}

TEST_F(TomlFiles, SyntaxErrorsNameTheLine) {
  EXPECT_THAT(reason(read_plan(file("schedule = \"1f1b\"\nreplica = = 3\n"))), StartsWith("line 2: "));
  path_ = folder_.file("none.toml");
  EXPECT_FALSE(reason(read_plan(path_)).empty());
}

}  // namespace
}  // namespace hdt::plan
