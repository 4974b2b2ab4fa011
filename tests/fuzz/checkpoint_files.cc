// checkpoint_files.cc: what a run reads of a checkpoint (training/checkpoint): the header of a safetensors
// file and training_state.json; and the summaries that ranks send each other; and what it reads of a model of
// Hugging Face's library: the index of its shards, and its configuration. The first byte says which.
#include "tests/fuzz/target.h"
#include "training/checkpoint/model_folder.h"
#include "training/checkpoint/paths.h"
#include "training/checkpoint/safetensors_header.h"
#include "training/checkpoint/training_state.h"
#include "training/torch/hugging_face_config.h"

namespace hdt::fuzz_checkpoint_files {

using fuzz::Bytes;
using fuzz::Choices;

bool take_header(Choices input) {
  const auto data_bytes = input.get<uint32_t>();
  const auto read = training::parse_safetensors_header(fuzz::to_text(input.rest()), data_bytes);
  if (!read.is_ok()) {
    HDT_HOLDS(read.status().code() == Code::kInvalidArgument && !read.status().message().empty());
    return false;
  }
  uint64_t bytes = 0;
  for (const auto& [name, entry] : read.value().tensors) {
    HDT_HOLDS(training::is_tensor_name(name) && entry.begin <= entry.end && entry.end <= data_bytes);
    HDT_HOLDS(training::element_count(entry.shape, entry.dtype) == entry.elements);
    HDT_HOLDS(entry.end - entry.begin == entry.elements * training::dtype_bytes(entry.dtype));
    bytes += entry.end - entry.begin;
    // The types that models are trained in have the same size in memory and in files.
    if (const auto type = training::number_type_of(entry.dtype)) {
      HDT_HOLDS(training::dtype_of(*type) == entry.dtype);
      HDT_HOLDS(training::bytes_of(*type) == training::dtype_bytes(entry.dtype));
    }
  }
  HDT_HOLDS(bytes == data_bytes);
  // A header that was read is written as one that reads as the same.
  const auto written = training::format_safetensors_header(read.value());
  HDT_HOLDS(written.is_ok() && written.value().size() % 8 == 0);
  const auto again =
      training::parse_safetensors_header(written.value().substr(training::kHeaderLengthBytes), data_bytes);
  HDT_HOLDS(again.is_ok() && again.value().metadata == read.value().metadata);
  HDT_HOLDS(training::format_safetensors_header(again.value()).value() == written.value());
  return true;
}

// The same of a JSON text.
template <typename T>
bool same(Result<T> (*parse)(std::string_view), std::span<const std::byte> input) {
  const Result<T> first = parse(fuzz::to_text(input));
  if (!first.is_ok()) {
    HDT_HOLDS(!first.status().message().empty());
    return false;
  }
  const std::string text = to_text(first.value());
  const Result<T> second = parse(text);
  HDT_HOLDS(second.is_ok() && to_text(second.value()) == text);
  return true;
}

bool take_index(std::span<const std::byte> input) {
  const auto index = training::parse_model_index(fuzz::to_text(input));
  if (!index.is_ok()) {
    HDT_HOLDS(!index.status().message().empty());
    return false;
  }
  for (const auto& [name, file] : index.value())
    HDT_HOLDS(training::is_tensor_name(name) && training::is_shard_file_name(file));
  return true;
}

// A configuration that is taken is written as one that is taken as the same.
bool take_config(std::span<const std::byte> input) {
  const auto shape = training::parse_model_config(fuzz::to_text(input));
  if (!shape.is_ok()) {
    HDT_HOLDS(!shape.status().message().empty());
    return false;
  }
  HDT_HOLDS(training::check_shape(shape.value()).empty());
  const auto again = training::parse_model_config(training::model_config_text(shape.value()));
  HDT_HOLDS(again.is_ok() && training::model_facts(again.value()) == training::model_facts(shape.value()));
  return true;
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  switch (choices.get<uint8_t>() % 5) {
    case 0:
      return take_header(choices);
    case 1:
      return same(training::parse_checkpoint_contents, choices.rest());
    case 2:
      return same(training::parse_shard_summary, choices.rest());
    case 3:
      return take_index(choices.rest());
    default:
      return take_config(choices.rest());
  }
}

constexpr char kHeader[] = R"({"__metadata__":{"format":"pt"},)"
                           R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                           R"("b":{"dtype":"BF16","shape":[],"data_offsets":[8,10]}}  )";
constexpr uint32_t kHeaderData = 10;

std::string state_text() {
  training::CheckpointContents contents;
  contents.state = {7, 3, 84, {{"hidden_size", "128"}}};
  contents.shards = {{"model-00001-of-00001.safetensors", 100}};
  contents.tensors = {
      {"w", {"model-00001-of-00001.safetensors", training::Dtype::kF32, {2, 3}, std::string(64, 'a')}}};
  return to_text(contents);
}

std::string summary_text() {
  const std::string file = "optimizer.rank-00001.safetensors";
  training::WrittenShard shard{training::ShardKind::kOptimizer, file, 99, {}};
  shard.tensors = {{"w.exp_avg", {file, training::Dtype::kF32, {6}, std::string(64, '0')}}};
  return to_text(training::ShardSummary{7, 1, {shard, {training::ShardKind::kModel, "m", 8, {}}}});
}

Bytes header_input(const std::string& text, uint32_t data_bytes = kHeaderData) {
  const Bytes bytes = fuzz::to_bytes(text);
  Bytes input = fuzz::changed({std::byte{0}}, 1, data_bytes);
  input.insert(input.end(), bytes.begin(), bytes.end());
  return input;
}

Bytes text_input(uint8_t first, const std::string& text) {
  Bytes input = fuzz::to_bytes(text);
  input.insert(input.begin(), std::byte{first});
  return input;
}

constexpr char kIndex[] = R"({"metadata":{},"weight_map":{"a":"m.safetensors","b":"n.safetensors"}})";

training::ModelShape llama_shape() {
  training::ModelShape shape;
  shape.num_layers = 2;
  shape.hidden_size = 8;
  shape.num_attention_heads = 2;
  shape.num_query_groups = 1;
  shape.ffn_hidden_size = 16;
  shape.vocab_size = 11;
  shape.max_position_embeddings = 32;
  shape.rope_scaling = {training::RopeScalingKind::kLlama3, 8};
  return shape;
}

std::vector<Bytes> seeds() {
  training::ModelShape linear = llama_shape();
  linear.rope_scaling = {training::RopeScalingKind::kLinear, 2.5};
  linear.tied_head = true;
  training::ModelShape gpt2 = llama_shape();
  gpt2.family = training::ModelFamily::kGpt2;
  gpt2.num_query_groups = 0;
  gpt2.rope_scaling = {};
  return {
      header_input(kHeader),
      header_input("{}", 0),
      text_input(1, state_text()),
      text_input(2, summary_text()),
      text_input(3, kIndex),
      text_input(4, model_config_text(llama_shape())),
      text_input(4, model_config_text(linear)),
      text_input(4, model_config_text(gpt2)),
      text_input(4, R"({"model_type":"llama","num_hidden_layers":1,"hidden_size":4,"num_attention_heads":2,)"
                    R"("intermediate_size":4,"vocab_size":3,"rope_parameters":{"rope_theta":500}})")};
}

std::string replaced(std::string text, const std::string& place, const std::string& by) {
  const size_t at = text.find(place);
  HDT_HOLDS(at != std::string::npos);
  return text.replace(at, place.size(), by);
}

std::vector<Bytes> spoilt() {
  std::vector<Bytes> all = {header_input(kHeader, kHeaderData + 1),
                            header_input(kHeader, kHeaderData - 1),
                            header_input(""),
                            header_input("{"),
                            header_input(std::string("{") + std::string(100, '[')),
                            header_input(R"({"__metadata__":1})", 0),
                            header_input(R"({"a":1})", 0)};
  const auto header = [&all](const char* place, std::initializer_list<const char*> by) {
    for (const char* each : by) all.push_back(header_input(replaced(kHeader, place, each)));
  };
  header("\"pt\"", {"1"});
  header("\"b\"", {"\"a\"", "\"\"", "\"\\u0001\""});
  header("\"F32\"", {"\"F33\"", "1"});
  header("\"dtype\":\"F32\",", {""});
  header("\"shape\":[2,1],", {""});
  header("[2,1]", {"1", "[-1]", "[3]", "[4294967296,4294967296]"});
  header(",\"data_offsets\":[0,8]", {""});
  header("[0,8]", {"1", "[0]", "[0,-8]", "[8,0]", "[4,12]"});
  header("[8,10]", {"[6,8]"});
  header("[2,1],\"data_offsets\":[0,8]", {"[1,1],\"data_offsets\":[4,8]"});
  const auto change = [&all](uint8_t first, const std::string& text, const char* place,
                             std::initializer_list<const char*> by) {
    for (const char* each : by) all.push_back(text_input(first, replaced(text, place, each)));
  };
  const std::string state = state_text();
  change(1, state, "\"version\": 1", {"\"version\": 2", "\"version\": \"1\"", "\"x\": 1"});
  change(1, state, "\"step\": 7", {"\"step\": -7", "\"x\": 1", "\"step\": 9223372036854775808"});
  change(1, state, "\"seed\": 3", {"\"seed\": 3.5"});
  change(1, state, "\"consumed_samples\": 84", {"\"consumed_samples\": null"});
  change(1, state, "\"128\"", {"128"});
  change(1, state, "\"fingerprint\"", {"\"x\""});
  change(1, state, "\"shards\"", {"\"x\""});
  change(1, state, "\"tensors\"", {"\"x\""});
  change(1, state, "\"model-00001-of-00001.safetensors\": 100",
         {"\"../m\": 100", "\".m\": 1", "\"model-00001-of-00001.safetensors\": \"1\"", "\"other\": 1"});
  change(1, state, "\"w\"", {"\"\""});
  change(1, state, "\"sha256\": \"a", {"\"sha256\": \"", "\"x\": \""});
  change(1, state, "\"shard\"", {"\"x\""});
  change(
      1, state, "\"settings\"",
      {R"("loss_scale": {"scale": 0.5, "good_steps": 9, "hysteresis_left": 0, "skipped_steps": 7}, "settings")",
       R"("loss_scale": {"scale": -1, "good_steps": 3, "hysteresis_left": 0, "skipped_steps": 7}, "settings")",
       R"("loss_scale": {"scale": 2, "good_steps": 3, "hysteresis_left": 0, "skipped_steps": 8}, "settings")",
       R"("loss_scale": {"scale": "2"}, "settings")", R"("loss_scale": 2, "settings")"});
  const std::string summary = summary_text();
  change(2, summary, "\"rank\":1", {"\"rank\":4294967296", "\"x\":1"});
  change(2, summary, "\"step\":7", {"\"step\":true"});
  change(2, summary, "\"shards\":[", {"\"shards\":[1,", "\"x\":["});
  change(2, summary, "\"shards\":", {"\"shards\":1,\"x\":"});
  change(2, summary, "\"kind\":\"optimizer\"", {"\"kind\":\"other\"", "\"kind\":1"});
  change(2, summary, "\"file\":\"optimizer", {"\"file\":\"/optimizer", "\"x\":\""});
  change(2, summary, "\"bytes\":99", {"\"bytes\":-1"});
  change(2, summary, "\"tensors\":", {"\"x\":"});
  change(2, summary, "\"w.exp_avg\":", {"\"w.exp_avg\":1,\"w\":"});
  change(3, kIndex, "\"weight_map\"", {"\"x\""});
  change(3, kIndex, "\"a\"", {"\"b\"", "\"\""});
  change(3, kIndex, "\"m.safetensors\"", {"1", "\"/m\"", "\".m\""});
  all.push_back(text_input(3, "["));
  const std::string config = model_config_text(llama_shape());
  change(4, config, "\"llama\"", {"\"other\"", "1"});
  change(4, config, "\"hidden_size\": 8", {"\"hidden_size\": 9", "\"hidden_size\": -8", "\"x\": 8"});
  change(4, config, "\"head_dim\": 4", {"\"head_dim\": 5"});
  change(4, config, "\"num_key_value_heads\": 1", {"\"num_key_value_heads\": 3"});
  change(4, config, "\"rms_norm_eps\": 1e-05",
         {"\"rms_norm_eps\": 0", "\"rms_norm_eps\": null, \"rope_scaling\": 1"});
  change(4, config, "\"tie_word_embeddings\": false", {"\"tie_word_embeddings\": 0"});
  change(4, config, "\"silu\"", {"\"relu\""});
  change(4, config, "\"llama3\"", {"\"yarn\"", "1"});
  change(4, config, "\"high_freq_factor\": 4.0", {"\"high_freq_factor\": 1.0"});
  change(4, config, "\"original_max_position_embeddings\": 8192", {"\"x\": 1"});
  all.push_back(text_input(4, "["));
  all.push_back(text_input(4, "[]"));
  all.push_back(text_input(1, "["));
  all.push_back(text_input(2, "["));
  return all;
}

HDT_FUZZ_TARGET(checkpoint_files, take, seeds, spoilt)

}  // namespace hdt::fuzz_checkpoint_files
