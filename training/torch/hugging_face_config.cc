// hugging_face_config.cc: every key that changes what the model computes is either taken or has to have the
// value that the layers here compute.
#include "training/torch/hugging_face_config.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/foreign_json.h"
#include "training/checkpoint/small_file.h"

namespace hdt::training {
namespace {

using nlohmann::json;

constexpr size_t kMostConfigBytes = size_t{1} << 20;
constexpr int64_t kMost = 100'000'000;    // a size; products of two keep within 64 bits
constexpr int64_t kMostLayers = 100'000;  // their names are listed
constexpr char kLlama[] = "llama";
constexpr char kGpt2[] = "gpt2";
constexpr char kLlamaScaling[] = "llama3";
constexpr char kLinearScaling[] = "linear";

// Takes values out of an object. The first one that is wrong is kept, and the values after it mean nothing.
class Reader {
 public:
  explicit Reader(const json& object) : object_(object) {}

  // Null for a key that is absent, or is null.
  const json* find(const char* key) const {
    const auto found = object_.find(key);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  // A size; without `otherwise` it must be there.
  int64_t size(const char* key, std::optional<int64_t> otherwise = std::nullopt, int64_t most = kMost) {
    const json* const value = find(key);
    if (value == nullptr && otherwise) return *otherwise;
    if (value == nullptr) return refuse(fmt::format("'{}' is missing", key)), 1;
    if (value->is_number_unsigned() && value->get<uint64_t>() >= 1 &&
        value->get<uint64_t>() <= static_cast<uint64_t>(most))
      return value->get<int64_t>();
    return refuse(key, *value, fmt::format("a whole number from 1 to {}", most)), 1;
  }

  double number(const char* key, double otherwise) {
    const json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (value->is_number() && std::isfinite(value->get<double>()) && value->get<double>() > 0)
      return value->get<double>();
    return refuse(key, *value, "a number above 0"), otherwise;
  }

  bool flag(const char* key, bool otherwise) {
    const json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (value->is_boolean()) return value->get<bool>();
    return refuse(key, *value, "true or false"), otherwise;
  }

  std::string text(const char* key, const char* otherwise) {
    const json* const value = find(key);
    if (value == nullptr) return otherwise;
    if (value->is_string()) return value->get<std::string>();
    return refuse(key, *value, "a text"), std::string(otherwise);
  }

  // A key that must have this value, or be absent.
  void only(const char* key, const json& expected) {
    const json* const value = find(key);
    if (value != nullptr && *value != expected) refuse(key, *value, expected.dump() + ", as here");
  }

  void refuse(const char* key, const json& value, const std::string& expected) {
    refuse(fmt::format("'{}' is {}, expected {}", key, value.dump(), expected));
  }
  void refuse(const std::string& reason) {
    if (status_.is_ok()) status_ = Status(Code::kInvalidArgument, reason);
  }
  const Status& status() const { return status_; }

 private:
  const json& object_;
  Status status_;
};

// "rope_scaling"; later versions of the library write "rope_parameters", with "rope_theta" inside.
Status read_rope(const json& object, ModelShape& shape) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) continue;
    if (!found->is_object()) return {Code::kInvalidArgument, fmt::format("'{}' is no object", key)};
    Reader reader(*found);
    // "type" is the older name.
    const std::string kind = reader.text("rope_type", reader.text("type", "default").c_str());
    shape.rotary_base = reader.number("rope_theta", shape.rotary_base);
    RopeScaling& scaling = shape.rope_scaling;
    if (kind == kLinearScaling) {
      scaling = {RopeScalingKind::kLinear, reader.number("factor", 1)};
    } else if (kind == kLlamaScaling) {
      scaling.kind = RopeScalingKind::kLlama3;
      scaling.factor = reader.number("factor", 1);
      scaling.low_frequency_factor = reader.number("low_freq_factor", 1);
      scaling.high_frequency_factor = reader.number("high_freq_factor", 4);
      scaling.original_positions = reader.size("original_max_position_embeddings");
      if (scaling.high_frequency_factor <= scaling.low_frequency_factor)
        reader.refuse("'high_freq_factor' is not above 'low_freq_factor'");
    } else if (kind != "default") {
      reader.refuse("rope_type", kind, "default, linear or llama3");
    }
    if (!reader.status().is_ok())
      return {reader.status().code(), fmt::format("'{}': {}", key, reader.status().message())};
  }
  return Status::ok();
}

// The defaults are those of LlamaConfig.
Result<ModelShape> read_llama(const json& object) {
  Reader reader(object);
  ModelShape shape;
  shape.num_layers = static_cast<int>(reader.size("num_hidden_layers", {}, kMostLayers));
  shape.hidden_size = reader.size("hidden_size");
  shape.num_attention_heads = reader.size("num_attention_heads");
  shape.num_query_groups = reader.size("num_key_value_heads", shape.num_attention_heads);
  shape.ffn_hidden_size = reader.size("intermediate_size");
  shape.vocab_size = reader.size("vocab_size");
  shape.max_position_embeddings = reader.size("max_position_embeddings", 2048);
  shape.norm_epsilon = reader.number("rms_norm_eps", 1e-6);
  shape.rotary_base = reader.number("rope_theta", 10000);
  shape.tied_head = reader.flag("tie_word_embeddings", false);
  reader.only("hidden_act", "silu");
  reader.only("attention_bias", false);
  reader.only("mlp_bias", false);
  reader.only("head_dim", shape.head_size());
  reader.only("partial_rotary_factor", 1.0);
  if (!reader.status().is_ok()) return reader.status();
  HDT_RETURN_IF_ERROR(read_rope(object, shape));
  return shape;
}

json llama_config(const ModelShape& shape) {
  json config = {{"architectures", {"LlamaForCausalLM"}},
                 {"model_type", kLlama},
                 {"num_hidden_layers", shape.num_layers},
                 {"hidden_size", shape.hidden_size},
                 {"num_attention_heads", shape.num_attention_heads},
                 {"num_key_value_heads", shape.query_groups()},
                 {"head_dim", shape.head_size()},
                 {"intermediate_size", shape.ffn_hidden_size},
                 {"vocab_size", shape.vocab_size},
                 {"max_position_embeddings", shape.positions()},
                 {"rms_norm_eps", shape.norm_epsilon},
                 {"rope_theta", shape.rotary_base},
                 {"tie_word_embeddings", shape.tied_head},
                 {"hidden_act", "silu"},
                 {"attention_bias", false},
                 {"mlp_bias", false}};
  const RopeScaling& scaling = shape.rope_scaling;
  if (scaling.kind == RopeScalingKind::kLinear)
    config["rope_scaling"] = {{"rope_type", kLinearScaling}, {"factor", scaling.factor}};
  if (scaling.kind == RopeScalingKind::kLlama3)
    config["rope_scaling"] = {{"rope_type", kLlamaScaling},
                              {"factor", scaling.factor},
                              {"low_freq_factor", scaling.low_frequency_factor},
                              {"high_freq_factor", scaling.high_frequency_factor},
                              {"original_max_position_embeddings", scaling.original_positions}};
  return config;
}

// The defaults are those of GPT2Config. Its dropout is not taken: that of a run is
// hdt-train's flags.
Result<ModelShape> read_gpt2(const json& object) {
  Reader reader(object);
  ModelShape shape;
  shape.family = ModelFamily::kGpt2;
  shape.num_layers = static_cast<int>(reader.size("n_layer", {}, kMostLayers));
  shape.hidden_size = reader.size("n_embd");
  shape.num_attention_heads = reader.size("n_head");
  shape.ffn_hidden_size = reader.size("n_inner", 4 * shape.hidden_size);
  shape.vocab_size = reader.size("vocab_size");
  shape.max_position_embeddings = reader.size("n_positions", 1024);
  shape.norm_epsilon = reader.number("layer_norm_epsilon", 1e-5);
  shape.tied_head = reader.flag("tie_word_embeddings", true);
  // Two names of the form with tanh.
  const std::string activation = reader.text("activation_function", "gelu_new");
  if (activation != "gelu_new" && activation != "gelu_pytorch_tanh")
    reader.refuse("activation_function", activation, "gelu_new or gelu_pytorch_tanh");
  reader.only("scale_attn_weights", true);
  reader.only("scale_attn_by_inverse_layer_idx", false);
  reader.only("reorder_and_upcast_attn", false);
  reader.only("add_cross_attention", false);
  if (!reader.status().is_ok()) return reader.status();
  return shape;
}

json gpt2_config(const ModelShape& shape) {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", kGpt2},
          {"n_layer", shape.num_layers},
          {"n_embd", shape.hidden_size},
          {"n_head", shape.num_attention_heads},
          {"n_inner", shape.ffn_hidden_size},
          {"vocab_size", shape.vocab_size},
          {"n_positions", shape.positions()},
          {"layer_norm_epsilon", shape.norm_epsilon},
          {"tie_word_embeddings", shape.tied_head},
          {"activation_function", "gelu_new"},
          {"embd_pdrop", 0.0},
          {"attn_pdrop", 0.0},
          {"resid_pdrop", 0.0}};
}

}  // namespace

Result<ModelShape> parse_model_config(std::string_view text) {
  const auto parsed = parse_foreign_json_once(text, kMostConfigBytes);
  if (!parsed.is_ok()) return parsed.status();
  if (!parsed.value().is_object()) return Status(Code::kInvalidArgument, "it is no JSON object");
  Reader reader(parsed.value());
  const std::string type = reader.text("model_type", "");
  if (type != kLlama && type != kGpt2) reader.refuse("model_type", type, "\"llama\" or \"gpt2\"");
  if (!reader.status().is_ok()) return reader.status();
  auto shape = type == kGpt2 ? read_gpt2(parsed.value()) : read_llama(parsed.value());
  if (!shape.is_ok()) return shape;
  const std::string wrong = check_shape(shape.value());
  if (!wrong.empty()) return Status(Code::kInvalidArgument, "as flags of hdt-train: " + wrong);
  return shape;
}

Result<ModelShape> read_model_config(const std::string& path) {
  const auto text = read_small_file(path, kMostConfigBytes);
  if (!text.is_ok()) return text.status();
  auto shape = parse_model_config(text.value());
  if (!shape.is_ok()) return Status(shape.status().code(), path + ": " + shape.status().message());
  return shape;
}

// The byte-wise tokens of hdt-data have no number that would begin or end a text in the library's sense.
std::string model_config_text(const ModelShape& shape, NumberType stored) {
  json config = shape.family == ModelFamily::kGpt2 ? gpt2_config(shape) : llama_config(shape);
  config["torch_dtype"] = stored == NumberType::kFloat64 ? "float64" : "float32";
  config["bos_token_id"] = nullptr;
  config["eos_token_id"] = nullptr;
  return config.dump(2) + "\n";
}

}  // namespace hdt::training
