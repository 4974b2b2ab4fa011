// training_files.cc: files that other programs bring to the training layer: the index of a dataset
// (training/data), and models, profiles, clusters, plans, calibrations and trials as TOML (training/plan).
// The first byte says which.
#include <algorithm>

#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"
#include "training/data/indexed_index.h"
#include "training/plan/describe/toml_files.h"
#include "training/plan/predict/calibration.h"
#include "training/plan/validate/trials.h"

namespace hdt::fuzz_training_files {

using fuzz::Bytes;
using fuzz::Choices;

bool take_index(Choices input) {
  const auto data_bytes = input.get<uint32_t>();
  const std::span<const std::byte> bytes = input.rest();
  const auto read = training::parse_dataset_index(bytes, data_bytes, "set");
  // A sketch checks parts of an index; whatever the rest is, a sequence begins within the data. The small
  // sizes are those for which an index of three sequences is a large one.
  for (const training::SketchSize size : {training::SketchSize(), {2, 1}, {3, 1}}) {
    const auto sketch = training::sketch_dataset_index(bytes, data_bytes, "set", size);
    HDT_HOLDS(sketch.is_ok() || !read.is_ok());
    for (uint64_t i = 0; sketch.is_ok() && i <= std::min<uint64_t>(sketch.value().sequences, 10'000); ++i) {
      const auto start = training::token_start(bytes, sketch.value(), i, "set");
      HDT_HOLDS(!start.is_ok() || start.value() * training::element_bytes(sketch.value().type) <= data_bytes);
    }
  }
  if (!read.is_ok()) {
    HDT_HOLDS(read.status().message().find(training::index_path("set")) != std::string::npos);
    return false;
  }
  const training::DatasetIndex& index = read.value();
  const uint64_t element = training::element_bytes(index.type);
  HDT_HOLDS(training::holds_tokens(index.type) && element >= 1 && element <= 8);
  HDT_HOLDS(training::element_minimum(index.type) < training::element_maximum(index.type));
  HDT_HOLDS(std::string(training::element_type_name(index.type)) != "unknown");
  HDT_HOLDS(std::ranges::is_sorted(index.token_starts) && index.token_starts.front() == 0);
  HDT_HOLDS(index.token_starts.back() * element == data_bytes);
  HDT_HOLDS(std::ranges::is_sorted(index.document_starts) && index.document_starts.front() == 0);
  HDT_HOLDS(index.document_starts.back() == index.token_starts.size() - 1);
  // As a writer chooses the type for so many words: it holds tokens, and the last word fits.
  const auto words = static_cast<int64_t>(data_bytes >> 1) + 1;
  const training::ElementType chosen = training::element_type_for_vocabulary(words);
  HDT_HOLDS(training::holds_tokens(chosen) && words - 1 <= training::element_maximum(chosen));
  return true;
}

// A value that was read is written as a text that reads as the same.
template <typename T>
bool same(Result<T> (*read)(const std::string&), std::span<const std::byte> input) {
  const fuzz::MemoryFile file(input);
  const Result<T> first = read(file.path());
  if (!first.is_ok()) {
    HDT_HOLDS(first.status().code() == Code::kConfig && !first.status().message().empty());
    return false;
  }
  const std::string text = plan::to_toml(first.value());
  const fuzz::MemoryFile written(fuzz::to_bytes(text));
  const Result<T> second = read(written.path());
  if (!second.is_ok()) std::fprintf(stderr, "%s\n%s\n", text.c_str(), second.status().message().c_str());
  HDT_HOLDS(second.is_ok() && plan::to_toml(second.value()) == text);
  return true;
}

// Trials that were read can be written as files of their names, and their layouts as plans.
bool take_trials(std::span<const std::byte> input) {
  const fuzz::MemoryFile file(input);
  const auto read = plan::read_trial_file(file.path());
  if (!read.is_ok()) {
    HDT_HOLDS(read.status().code() == Code::kConfig && !read.status().message().empty());
    return false;
  }
  HDT_HOLDS(plan::has_trials(file.path()) && !read.value().trials.empty());
  for (const plan::TrialFile::Trial& trial : read.value().trials) {
    const plan::Measurement& measured = trial.measured;
    HDT_HOLDS(!measured.name.empty() && measured.name.find('/') == std::string::npos);
    HDT_HOLDS(measured.step_seconds > 0 && measured.peak_memory_bytes >= 0);
    HDT_HOLDS(trial.plan_path.empty() == !measured.plan.replicas.empty());
    if (!trial.plan_path.empty()) continue;
    const fuzz::MemoryFile written(fuzz::to_bytes(plan::to_toml(measured.plan)));
    const auto again = plan::read_plan(written.path());
    HDT_HOLDS(again.is_ok() && again.value() == measured.plan);
  }
  return true;
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  switch (choices.get<uint8_t>() % 7) {
    case 0:
      return take_index(choices);
    case 1:
      return same(plan::read_model, choices.rest());
    case 2:
      return same(plan::read_profile, choices.rest());
    case 3:
      return same(plan::read_cluster, choices.rest());
    case 4:
      return same(plan::read_plan, choices.rest());
    case 5:
      return same(plan::read_calibration, choices.rest());
    default:
      return take_trials(choices.rest());
  }
}

template <typename T>
void append(Bytes& all, T value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  all.insert(all.end(), bytes.begin(), bytes.end());
}

// Two documents of three sequences.
Bytes an_index(training::ElementType type) {
  const auto element = static_cast<int64_t>(training::element_bytes(type));
  Bytes all = {std::byte{0}};
  append(all, static_cast<uint32_t>(9 * element));
  append(all, training::kIndexMagic);
  append(all, training::kIndexVersion);
  append(all, type);
  append(all, uint64_t{3});
  append(all, uint64_t{3});
  for (const int32_t size : {2, 3, 4}) append(all, size);
  for (const int64_t start : {0, 2, 5}) append(all, start * element);
  for (const int64_t document : {0, 2, 3}) append(all, document);
  return all;
}

Bytes text_seed(uint8_t first, const std::string& text) {
  Bytes seed = fuzz::to_bytes(text);
  seed.insert(seed.begin(), std::byte{first});
  return seed;
}

constexpr char kModel[] = R"(name = "llama"
state_factor = 4.0
optimizer_factor = 2.5
tied_parameter_bytes = [[1, 400], [2, 200]]
[[layer]]
kind = "embedding"
output_bytes = 100
parameter_bytes = [[1, 1000], [2, 500]]
[[layer]]
kind = "block"
count = 6
output_bytes = 100
parameter_bytes = [[1, 1000], [2, 500]]
forward_sums = [100, 200]
backward_sums = [300]
[[layer]]
kind = "head"
output_bytes = 100
parameter_bytes = [[1, 1000]]
)";

constexpr char kProfile[] = R"(name = "measured"
overlap_slowdown = 1.2
[[collective]]
step_overhead = 1e-6
reduce_rate = 1e9
copy_rate = 2e9
piece_bytes = 524288
[[compute]]
device = "cpu"
layer = "block"
tensor_parallel = 1
micro_batch_size = 2
forward = 0.1
input_gradient = 0.1
weight_gradient = 0.1
update = 0.01
activation_bytes = 4096
selective_more_seconds = 0.01
selective_activation_bytes = 1024
[[overlap]]
device = "cpu"
slowdown = 1.5
[[memory]]
device = "cpu"
fixed_bytes = 60000000
[[link]]
from = "cpu"
to = "cpu"
nic = "eth"
latency = 1e-5
bandwidth = [[1024, 1e8], [1048576, 1e9]]
allreduce = [[1024, 1e8]]
[[link]]
from = "cpu"
to = "cpu"
inside = true
bandwidth = [[1024, 1e8]]
)";

constexpr char kCluster[] = R"([[nic]]
name = "eth"
backends = ["tcp"]
interfaces = ["eth0"]
[[node]]
name = "n"
device = "cpu"
devices = 2
memory_bytes = 1000000
nics = ["eth"]
count = 3
)";

constexpr char kPlan[] = R"(schedule = "1f1b"
reduction = "hdt"
background_send_bytes = 0
overlap_gradients = true
bucket_bytes = 4096
use_distributed_optimizer = true
[class.dp]
weight = 3
backends = ["tcp"]
[[replica]]
micro_batch_size = 1
micro_batches = 4
[[replica.stage]]
layers = 3
node = "n-1"
tensor_parallel = 1
recompute_layers = 1
recompute_granularity = "selective"
optimizer_shard_weight = 0.5
[[replica.stage]]
layers = 3
node = "n-2"
)";

constexpr char kChunkedPlan[] = R"(schedule = "interleaved"
[[replica]]
micro_batch_size = 1
micro_batches = 4
[[replica.stage]]
layers = [2, 1]
node = "n-1"
[[replica.stage]]
layers = [1, 2]
node = "n-2"
)";

constexpr char kCalibration[] = R"(name = "set"
compute = 1.1
launch = 0.5
fixed_bytes = 1000000
measured_over_predicted = [0.9, 1.1, 1]
)";

constexpr char kTrials[] = R"(name = "lab"
model = "model.toml"
profile = "profile.toml"
cluster = "cluster.toml"
[[trials]]
plan = "plan.toml"
step_seconds = 1.5
peak_memory_bytes = 1000
[[trials]]
name = "in place"
step_seconds = 2
left_out = "slow"
schedule = "1f1b-lockstep"
background_send_bytes = 0
[[trials.replica]]
micro_batch_size = 1
micro_batches = 4
[[trials.replica.stage]]
layers = 6
node = "n-1"
tensor_parallel = 2
)";

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (uint8_t code = 1; code <= 8; ++code) {
    const auto type = training::element_type_from_code(code);
    if (training::holds_tokens(*type)) all.push_back(an_index(*type));
  }
  all.push_back(text_seed(1, kModel));
  all.push_back(text_seed(2, kProfile));
  all.push_back(text_seed(3, kCluster));
  all.push_back(text_seed(4, kPlan));
  all.push_back(text_seed(4, kChunkedPlan));
  all.push_back(text_seed(5, kCalibration));
  all.push_back(text_seed(6, kTrials));
  return all;
}

// A text with one place of it replaced.
Bytes replaced(uint8_t first, std::string text, const std::string& place, const std::string& by) {
  const size_t at = text.find(place);
  HDT_HOLDS(at != std::string::npos);
  return text_seed(first, text.replace(at, place.size(), by));
}

std::vector<Bytes> spoilt() {
  using training::ElementType;
  const Bytes good = an_index(ElementType::kInt32);
  constexpr size_t kAt = 5;  // where the file begins
  constexpr size_t kSizesAt = kAt + training::kIndexHeaderBytes;
  constexpr size_t kPointersAt = kSizesAt + 3 * sizeof(int32_t);
  constexpr size_t kDocumentsAt = kPointersAt + 3 * sizeof(int64_t);
  Bytes longer = good, multimodal = good, none = good;
  longer.push_back(std::byte{0});
  multimodal.resize(multimodal.size() + 3);
  none.resize(kDocumentsAt);
  std::vector<Bytes> all = {{std::byte{0}},
                            fuzz::changed(good, kAt, '\n'),
                            fuzz::changed(good, kAt + 9, training::kIndexVersion + 1),
                            fuzz::changed(good, kAt + 17, uint8_t{0}),
                            fuzz::changed(good, kAt + 17, uint8_t{9}),
                            fuzz::changed(good, kAt + 17, ElementType::kFloat32),
                            fuzz::changed(good, kAt + 17, ElementType::kFloat64),
                            fuzz::changed(good, kAt + 18, uint64_t{100}),
                            fuzz::changed(good, kAt + 26, uint64_t{100}),
                            longer,
                            multimodal,
                            fuzz::changed(none, kAt + 26, uint64_t{0}),
                            fuzz::changed(good, kSizesAt, int32_t{-1}),
                            fuzz::changed(good, kPointersAt, int64_t{1}),
                            fuzz::changed(good, kSizesAt + 2 * sizeof(int32_t), int32_t{40}),
                            fuzz::changed(good, kSizesAt + 2 * sizeof(int32_t), int32_t{3}),
                            fuzz::changed(good, kDocumentsAt, int64_t{1}),
                            fuzz::changed(good, kDocumentsAt + 2 * sizeof(int64_t), int64_t{2})};
  // Every way to read a field, and what it refuses.
  const auto change = [&all](uint8_t first, const std::string& text, const char* place,
                             std::initializer_list<const char*> by) {
    for (const char* each : by) all.push_back(replaced(first, text, place, each));
  };
  change(1, kModel, "name = \"llama\"", {"", "name = \"\"", "name = 1", "other = 1"});
  change(1, kModel, "[[1, 1000], [2, 500]]",
         {"1", "[]", "[1, 2]", "[[1]]", "[[1, \"a\"]]", "[[2, 1], [1, 1]]", "[[1.5, 2]]", "[[1, inf]]"});
  change(1, kModel, "count = 6", {"count = 0", "count = 1.5", "count = 3000000000"});
  change(1, kModel, "[100, 200]", {"[]", "1", "[0]", "[1.5]", "['a']"});
  change(6, kTrials, "name = \"lab\"", {"", "name = \"a/b\"", "name = \"..\""});
  change(6, kTrials, "name = \"in place\"", {"name = \"trial-1\"", "name = 1"});
  change(6, kTrials, "[[trials]]\nplan", {"[trials]\nplan", "[[trial]]\nplan"});
  change(6, kTrials, "step_seconds = 2", {"step_seconds = -2", "step_seconds = inf", "seconds = 2"});
  change(6, kTrials, "plan = \"plan.toml\"", {"", "plan = 1", "plan = \"a\"\n[[trials.replica]]"});
  change(6, kTrials, "layers = 6", {"layers = -1", "layers = 6\nrecompute_layers = 7"});
  change(1, kModel, "4.0", {"0", "nan", "\"a\""});
  change(2, kProfile, "overlap_slowdown = 1.2", {"overlap_slowdown = 0.5"});
  change(2, kProfile, "[[collective]]", {"[collective]", "[[collective]]\n[[collective]]"});
  change(2, kProfile, "step_overhead = 1e-6", {"step_overhead = -1"});
  change(2, kProfile, "inside = true", {"inside = 1", "nic = \"eth\""});
  change(2, kProfile, "[[overlap]]\ndevice = \"cpu\"", {"[[overlap]]\ndevice = \"gpu\""});
  change(2, kProfile, "[[memory]]\ndevice = \"cpu\"", {"[[memory]]\ndevice = \"gpu\""});
  change(3, kCluster, "[\"tcp\"]", {"[]", "\"tcp\"", "[1]", "[\"\"]"});
  change(3, kCluster, "count = 3", {"count = 1000001"});
  change(4, kPlan, "1f1b", {"2f2b"});
  change(4, kPlan, "hdt", {"other"});
  change(4, kPlan, "background_send_bytes = 0", {"background_send_bytes = -1"});
  change(4, kPlan, "[class.dp]", {"[class]", "[[class]]"});
  change(4, kPlan, "weight = 3", {"weight = 1.5", "weight = [1]", "weight = 1001"});
  change(4, kPlan, "[[replica.stage]]", {"[replica.stage]"});
  change(4, kChunkedPlan, "[2, 1]", {"[2, 0]", "[]", "[3]", "['a']", "[2147483647, 1]"});
  change(4, kChunkedPlan, "micro_batches = 4", {"micro_batches = 3"});
  change(5, kCalibration, "launch = 0.5", {"launch = 0"});
  change(5, kCalibration, "[0.9, 1.1, 1]", {"1", "[0]", "[\"a\"]", "[inf]"});
  change(5, kCalibration, "\nmeasured_over_predicted = [0.9, 1.1, 1]", {"", "= ", "\n[[a.b]]\n[a.b]"});
  all.push_back(text_seed(1, std::string(100, '[')));
  return all;
}

HDT_FUZZ_TARGET(training_files, take, seeds, spoilt)

}  // namespace hdt::fuzz_training_files
