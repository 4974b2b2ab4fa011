// training_files.cc: files that other programs bring to the training layer: the index of a dataset
// (training/data), and models, profiles, clusters and plans as TOML (training/plan). The first byte says
// which.
#include <algorithm>

#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"
#include "training/data/indexed_index.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::fuzz_training_files {

using fuzz::Bytes;
using fuzz::Choices;

bool take_index(Choices input) {
  const auto data_bytes = input.get<uint32_t>();
  const auto read = training::parse_dataset_index(input.rest(), data_bytes, "set");
  if (!read.is_ok()) {
    HDT_HOLDS(read.status().message().find("set.idx") != std::string::npos);
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
  return true;
}

// What was read is written as a text that reads as the same.
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

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  switch (choices.get<uint8_t>() % 5) {
    case 0:
      return take_index(choices);
    case 1:
      return same(plan::read_model, choices.rest());
    case 2:
      return same(plan::read_profile, choices.rest());
    case 3:
      return same(plan::read_cluster, choices.rest());
    default:
      return same(plan::read_plan, choices.rest());
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

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (uint8_t code = 1; code <= 8; ++code) {
    const auto type = training::element_type_from_code(code);
    if (training::holds_tokens(*type)) all.push_back(an_index(*type));
  }
  all.push_back(text_seed(1, R"(name = "llama"
state_factor = 4.0
[[layer]]
kind = "embedding"
output_bytes = 100
parameter_bytes = [[1, 1000], [2, 500]]
[[layer]]
kind = "block"
count = 6
output_bytes = 100
parameter_bytes = [[1, 1000], [2, 500]]
[[layer]]
kind = "head"
output_bytes = 100
parameter_bytes = [[1, 1000]]
)"));
  all.push_back(text_seed(2, R"(name = "measured"
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
[[overlap]]
device = "cpu"
slowdown = 1.5
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
)"));
  all.push_back(text_seed(3, R"([[nic]]
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
)"));
  all.push_back(text_seed(4, R"(schedule = "1f1b"
reduction = "hdt"
background_send_bytes = 0
overlap_gradients = true
bucket_bytes = 4096
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
[[replica.stage]]
layers = 3
node = "n-2"
)"));
  return all;
}

HDT_FUZZ_TARGET(training_files, take, seeds)

}  // namespace hdt::fuzz_training_files
