// model_flags.cc: sizes come from flags or from a config.json; what both say is compared by the flags' names.
#include "tools/hdt-train/model_flags.h"

#include <fmt/format.h>

#include <map>
#include <utility>

#include "tools/common/flag_checks.h"
#include "training/torch/hugging_face_config.h"

namespace hdt::tools {
namespace {

using training::ModelShape;
using training::RopeScalingKind;

// A limit for counts that is far above any sensible value, and keeps products within 64 bits.
constexpr int kMostOfAShape = 1'000'000;
constexpr double kMostFactor = 1'000'000;
constexpr double kMostRotaryBase = 1e12;
constexpr double kMostDropout = 0.99;

// Refuses all but the two.
CLI::Validator one_of(const char* first, const char* second) {
  return {[first, second](std::string& text) {
            return text == first || text == second
                       ? std::string()
                       : fmt::format("'{}' given; expected {} or {}", text, first, second);
          },
          ""};
}

// Which model it is. The other flags say what it is anyway; they are taken so that Megatron's command lines
// fit.
void add_family(CLI::App& app, ModelFlags& model) {
  app.add_option("--position-embedding-type", model.position_embedding,
                 "rope, or learned_absolute with --normalization LayerNorm: LLaMA or GPT-2")
      ->type_name("NAME")
      ->check(one_of("rope", "learned_absolute"))
      ->capture_default_str();
  app.add_option("--normalization", model.normalization,
                 "RMSNorm, or LayerNorm with --position-embedding-type learned_absolute")
      ->type_name("NAME")
      ->check(one_of("RMSNorm", "LayerNorm"))
      ->capture_default_str();
  app.add_flag("--swiglu", model.swiglu, "LLaMA's MLP is SwiGLU anyway");
  app.add_flag("--use-rotary-position-embeddings", model.rotary_positions,
               "LLaMA's positions are rotary anyway");
  app.add_flag("--disable-bias-linear", model.no_biases, "LLaMA has no biases anyway");
}

// The default is none, as the default model is LLaMA; Megatron's is 0.1.
void add_dropout(CLI::App& app, training::DropoutRates& dropout) {
  app.add_option("--attention-dropout", dropout.attention,
                 "probability with which an attention probability is dropped in training (Megatron's default "
                 "is 0.1)")
      ->check(number(0, kMostDropout))
      ->capture_default_str();
  app.add_option(
         "--hidden-dropout", dropout.hidden,
         "probability with which an element is dropped behind the embedding, and of what a layer adds "
         "to its input (Megatron's default is 0.1)")
      ->check(number(0, kMostDropout))
      ->capture_default_str();
}

// GPT-2 has none of what these flags say.
Status check_family(const CLI::App& app, const ModelShape& shape) {
  if (shape.family != training::ModelFamily::kGpt2) return Status::ok();
  for (const char* flag : {"--swiglu", "--use-rotary-position-embeddings", "--disable-bias-linear",
                           "--no-position-embedding", "--group-query-attention", "--num-query-groups",
                           "--rotary-base", "--rotary-seq-len-interpolation-factor", "--use-rope-scaling"}) {
    if (app.get_option(flag)->count() > 0)
      return {Code::kInvalidArgument,
              fmt::format("{}: GPT-2 has GELU, learned positions, biases and a key a head", flag)};
  }
  return Status::ok();
}

// Rotary embeddings, and the tying of embedding and head.
void add_features(CLI::App& app, TrainFlags& flags, ModelFlags& model) {
  auto& shape = flags.shape;
  app.add_option("--norm-epsilon", shape.norm_epsilon, "added to the mean square or the variance in norms")
      ->check(number(1e-30, 1))
      ->capture_default_str();
  app.add_option("--rotary-base", shape.rotary_base, "base of the frequencies of rotary embeddings")
      ->check(number(1, kMostRotaryBase))
      ->capture_default_str();
  app.add_option("--rotary-seq-len-interpolation-factor", model.interpolation_factor,
                 "positions are divided by it, for texts longer than those of the pre-training")
      ->check(number(1, kMostFactor))
      ->capture_default_str();
  app.add_flag("--use-rope-scaling", model.use_rope_scaling,
               "divide only low frequencies, as LLaMA 3 does, for texts longer than 8192 tokens");
  app.add_option("--rope-scaling-factor", model.rope_scaling_factor, "by which --use-rope-scaling divides")
      ->check(number(1, kMostFactor))
      ->capture_default_str();
  app.add_flag("--tie-embeddings-and-output-weights", model.tied, "the head's matrix is the embedding");
  app.add_flag("--untie-embeddings-and-output-weights", model.untied, "embedding and head are two (default)");
}

// Whether the flags are consistent, and what they mean, for a model that they alone describe.
Status read_features(const CLI::App& app, const ModelFlags& model, ModelShape& shape,
                     std::vector<std::string>& without_effect) {
  const auto given = [&app](const char* flag) { return app.get_option(flag)->count() > 0; };
  const auto refused = [](std::string reason) { return Status(Code::kInvalidArgument, std::move(reason)); };
  // Scripts of Megatron's forks have it so, and train a model with a key for each head.
  if (given("--num-query-groups") && !model.group_query_attention) {
    without_effect.push_back("--num-query-groups (as in Megatron, without --group-query-attention)");
    shape.num_query_groups = 0;
  }
  if (model.group_query_attention && !given("--num-query-groups"))
    return refused("--group-query-attention: expected --num-query-groups, found none");
  if (given("--rope-scaling-factor") && !model.use_rope_scaling)
    return refused("--rope-scaling-factor: expected --use-rope-scaling, found none");
  if (model.interpolation_factor != 1 && model.use_rope_scaling)
    return refused("--rotary-seq-len-interpolation-factor and --use-rope-scaling exclude each other");
  if (model.tied && model.untied)
    return refused(
        "--tie-embeddings-and-output-weights and --untie-embeddings-and-output-weights exclude each other");
  if (model.position_embedding == "learned_absolute" && model.normalization == "LayerNorm")
    shape.family = training::ModelFamily::kGpt2;
  shape.tied_head = model.tied;
  if (model.interpolation_factor != 1)
    shape.rope_scaling = {RopeScalingKind::kLinear, model.interpolation_factor};
  // The other values are LLaMA 3's.
  if (model.use_rope_scaling) shape.rope_scaling = {RopeScalingKind::kLlama3, model.rope_scaling_factor};
  return Status::ok();
}

// Each flag that was given must say what config.json says.
Status compare(const CLI::App& app, const ModelFlags& model, const std::string& path,
               const ModelShape& of_flags, const ModelShape& of_config) {
  const std::map<std::string, std::string> config = training::model_facts(of_config);
  for (const auto& [key, value] : training::model_facts(of_flags)) {
    if (app.get_option("--" + key)->count() > 0 && config.at(key) != value)
      return {Code::kInvalidArgument, fmt::format("--{} {}: {} has {}", key, value, path, config.at(key))};
  }
  if (model.untied && of_config.tied_head)
    return {Code::kInvalidArgument,
            fmt::format("--untie-embeddings-and-output-weights: {} has them tied", path)};
  return Status::ok();
}

}  // namespace

void add_model(CLI::App& app, TrainFlags& flags, ModelFlags& model) {
  const CLI::Validator positive = whole(1, kMostOfAShape);
  auto& shape = flags.shape;
  // The default model learns a book in minutes on a few cores.
  flags.layout.num_layers = 4;
  shape.hidden_size = 128;
  shape.num_attention_heads = 4;
  shape.ffn_hidden_size = 352;
  shape.sequence_length = 128;
  app.add_option("--num-layers", flags.layout.num_layers, "transformer layers")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--hidden-size", shape.hidden_size, "width of the model")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--num-attention-heads", shape.num_attention_heads, "heads; they share the hidden size")
      ->check(positive)
      ->capture_default_str();
  app.add_flag("--group-query-attention", model.group_query_attention,
               "several heads share keys and values; see --num-query-groups");
  app.add_option("--num-query-groups", shape.num_query_groups,
                 "heads of keys and values, each of which serves as many others")
      ->check(positive);
  app.add_option("--kv-channels", model.kv_channels, "only --hidden-size / --num-attention-heads")
      ->check(positive);
  app.add_option("--ffn-hidden-size", shape.ffn_hidden_size, "width inside the MLP")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--seq-length", shape.sequence_length, "tokens of a sample")
      ->check(positive)
      ->capture_default_str();
  app.add_option("--max-position-embeddings", shape.max_position_embeddings,
                 "the longest sample that the model is made for (default: --seq-length)")
      ->check(whole(1, 100 * kMostOfAShape));
  app.add_option("--vocab-size", shape.vocab_size,
                 "tokens known (default: those of the tokenizer, or of a config.json)")
      ->check(positive);
  add_features(app, flags, model);
  add_family(app, model);
  add_dropout(app, flags.dropout);
  app.add_option("--hf-config", model.config,
                 "take the model's sizes from this config.json of Hugging Face's library")
      ->type_name("FILE")
      ->check(path_name());
  app.add_option("--load-hf", flags.load_hf,
                 "start from the model in this folder of Hugging Face's library: config.json and "
                 "safetensors files in fp32, bf16, fp16 or fp64; a checkpoint of --load is the later one")
      ->type_name("DIR")
      ->check(path_name());
}

Status take_model(const CLI::App& app, const ModelFlags& model, TrainFlags& flags) {
  ModelShape& shape = flags.shape;
  shape.num_layers = flags.layout.num_layers;
  HDT_RETURN_IF_ERROR(read_features(app, model, shape, flags.without_effect));
  if (!flags.load_hf.empty() && !model.config.empty())
    return {Code::kInvalidArgument, "--load-hf and --hf-config exclude each other: the folder has its own"};
  const std::string path = flags.load_hf.empty() ? model.config : flags.load_hf + "/config.json";
  if (!path.empty()) {
    const Result<ModelShape> config = training::read_model_config(path);
    if (!config.is_ok())
      return {config.status().code(),
              (flags.load_hf.empty() ? "--hf-config: " : "--load-hf: ") + config.status().message()};
    HDT_RETURN_IF_ERROR(compare(app, model, path, shape, config.value()));
    if (flags.plan && config.value().num_layers != shape.num_layers)
      return {Code::kInvalidArgument, fmt::format("--plan {} has {} layers: {} has {}", flags.plan_path,
                                                  shape.num_layers, path, config.value().num_layers)};
    const int64_t length = shape.sequence_length;
    shape = config.value();
    shape.sequence_length = length;
    flags.layout.num_layers = shape.num_layers;
  }
  // Beside a config.json one of the two flags is enough: each was compared with it.
  const bool learned = model.position_embedding == "learned_absolute";
  if (path.empty() && learned != (model.normalization == "LayerNorm"))
    return {
        Code::kInvalidArgument,
        fmt::format("--position-embedding-type {} and --normalization {}: expected rope and RMSNorm (LLaMA) "
                    "or learned_absolute and LayerNorm (GPT-2)",
                    model.position_embedding, model.normalization)};
  HDT_RETURN_IF_ERROR(check_family(app, shape));
  if (model.kv_channels && *model.kv_channels * shape.num_attention_heads != shape.hidden_size)
    return {Code::kInvalidArgument,
            fmt::format("--kv-channels {}: expected --hidden-size {} / --num-attention-heads {}",
                        *model.kv_channels, shape.hidden_size, shape.num_attention_heads)};
  if (!flags.profile_folder.empty() && !flags.load_hf.empty())
    return {Code::kInvalidArgument, "--load-hf: only for training; for --profile there is --hf-config"};
  return Status::ok();
}

}  // namespace hdt::tools
