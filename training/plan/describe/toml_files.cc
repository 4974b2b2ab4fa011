// toml_files.cc: the readers of the four kinds of files. Each takes all fields first (toml_fields.h),
// then checks the whole, if there was no error.
#include "training/plan/describe/toml_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "base/config_keys.h"
#include "training/plan/describe/toml_fields.h"

namespace hdt::plan {
namespace {

// The checks of a whole value do not know its file: puts the path before their message.
Status in_file(const std::string& path, const Status& status) {
  return status.is_ok() ? status : Status(status.code(), path + ": " + status.message());
}

// The points of a field as bytes by tensor-parallel degree.
std::map<int, int64_t> bytes_by_degree(TomlFields& fields, const char* field,
                                       const std::vector<std::pair<double, double>>& points) {
  std::map<int, int64_t> found;
  for (const auto& [degree, bytes] : points) {
    // Up to 9e15 a double holds every whole number, so nothing is lost on the way.
    if (degree != std::floor(degree) || degree > std::numeric_limits<int>::max() ||
        bytes != std::floor(bytes) || bytes > 9e15)
      fields.fail(field, "expected [[tensor_parallel, bytes], ...] of whole numbers");
    else
      found[static_cast<int>(degree)] = static_cast<int64_t>(bytes);
  }
  return found;
}

// A field with the name of a type of numbers.
training::NumberType number_type(TomlFields& fields, const char* field, training::NumberType otherwise) {
  const std::string name = fields.text_or(field, training::number_type_name(otherwise));
  const std::optional<training::NumberType> type = training::number_type_of(name);
  if (!type) fields.fail(field, fmt::format("'{}' given, expected fp32, bf16, fp16 or fp64", name));
  return type.value_or(otherwise);
}

// Sums of one layer in one direction: more than any layer does.
constexpr size_t kMostSums = 64;

// One [[layer]] table of a model.
LayerKind read_layer(TomlFields& fields) {
  LayerKind kind;
  kind.name = fields.text("kind");
  kind.count = static_cast<int>(fields.count_or("count", 1));
  kind.output_bytes = fields.size("output_bytes");
  kind.parameter_bytes = bytes_by_degree(fields, "parameter_bytes", fields.points("parameter_bytes"));
  kind.forward_sums = fields.sizes_or_none("forward_sums", kMostSums);
  kind.backward_sums = fields.sizes_or_none("backward_sums", kMostSums);
  fields.end();
  return kind;
}

// The two fields of a [[compute]] table that belong together, or nothing.
std::optional<RecomputedAttention> read_attention(TomlFields& fields, int64_t activation_bytes) {
  const std::optional<double> more_seconds = fields.optional_positive("selective_more_seconds");
  const std::optional<int64_t> bytes = fields.optional_size("selective_activation_bytes");
  if (more_seconds.has_value() != bytes.has_value())
    fields.fail(more_seconds ? "selective_activation_bytes" : "selective_more_seconds",
                fmt::format("none given, expected one beside {}",
                            more_seconds ? "selective_more_seconds" : "selective_activation_bytes"));
  if (!more_seconds || !bytes) return std::nullopt;
  if (*bytes > activation_bytes)
    fields.fail("selective_activation_bytes",
                fmt::format("{} given, expected at most activation_bytes, {}", *bytes, activation_bytes));
  return RecomputedAttention{*more_seconds, *bytes};
}

// One [[compute]] table of a profile.
void read_compute(TomlFields& fields, Profile& profile) {
  ComputeKey key;
  key.device = fields.text("device");
  key.layer = fields.text("layer");
  key.tensor_parallel = static_cast<int>(fields.count("tensor_parallel"));
  key.micro_batch_size = static_cast<int>(fields.count("micro_batch_size"));
  LayerCost cost;
  cost.forward = fields.positive("forward");
  cost.input_gradient = fields.positive("input_gradient");
  cost.weight_gradient = fields.positive("weight_gradient");
  cost.update = fields.positive("update");
  cost.activation_bytes = fields.size("activation_bytes");
  cost.recomputed_attention = read_attention(fields, cost.activation_bytes);
  fields.end();
  // Two entries with the same key would leave open which one counts.
  if (!profile.compute.emplace(key, cost).second) fields.fail("device", "this layer was given before");
}

// The figure of one device kind. Must come after [[compute]], as it refuses kinds that were not profiled.
template <typename Figure>
void add_of_device(TomlFields& fields, const std::string& device, Figure figure, const Profile& profile,
                   std::map<std::string, Figure>& into) {
  const auto of_device = [&](const auto& entry) { return entry.first.device == device; };
  if (std::ranges::none_of(profile.compute, of_device))
    fields.fail("device", fmt::format("'{}' given, but no [[compute]] is of this device", device));
  if (!into.emplace(device, figure).second) fields.fail("device", "this device was given before");
}

void read_overlap(TomlFields& fields, Profile& profile) {
  const std::string device = fields.text("device");
  const double slowdown = fields.positive("slowdown");
  fields.end();
  if (slowdown < 1) fields.fail("slowdown", fmt::format("{} given, expected at least 1", slowdown));
  add_of_device(fields, device, slowdown, profile, profile.overlap_slowdowns);
}

void read_memory(TomlFields& fields, Profile& profile) {
  const std::string device = fields.text("device");
  const int64_t bytes = fields.size("fixed_bytes");
  fields.end();
  add_of_device(fields, device, bytes, profile, profile.fixed_bytes);
}

// The [[collective]] table. All of its fields may be left out: what was not measured costs nothing.
void read_collective(TomlFields& fields, CollectiveFigures& figures) {
  figures.step_overhead = fields.not_negative_or("step_overhead", figures.step_overhead);
  figures.reduce_rate = fields.positive_or("reduce_rate", figures.reduce_rate);
  figures.copy_rate = fields.positive_or("copy_rate", figures.copy_rate);
  figures.piece_bytes = fields.count_or("piece_bytes", figures.piece_bytes);
  fields.end();
}

// One [[link]] table.
void read_link(TomlFields& fields, Profile& profile) {
  LinkKey key;
  key.from = fields.text("from");
  key.to = fields.text("to");
  key.inside = fields.flag_or("inside", false);
  if (key.inside && key.from != key.to) fields.fail("inside", "a link inside a node has one device kind");
  key.nic = fields.text_or("nic", "");
  if (key.inside && !key.nic.empty()) fields.fail("nic", "a link inside a node uses no NIC");
  Link link;
  link.latency = fields.not_negative_or("latency", 0);
  link.bandwidth = fields.points("bandwidth");
  link.allreduce = fields.points_or_none("allreduce");
  fields.end();
  if (!profile.links.emplace(key, link).second) fields.fail("from", "this link was given before");
}

// The layers that a stage recomputes, and what of them.
void read_recomputation(TomlFields& fields, Stage& stage) {
  stage.recomputed_layers = static_cast<int>(fields.count_or("recompute_layers", 0));
  const std::string granularity = fields.text_or("recompute_granularity", kFullGranularity);
  stage.attention_only = granularity == kSelectiveGranularity;
  if (!stage.attention_only && granularity != kFullGranularity)
    fields.fail("recompute_granularity", fmt::format("'{}' given, expected {} or {}", granularity,
                                                     kFullGranularity, kSelectiveGranularity));
}

// One [[replica]] table with its [[replica.stage]] tables.
Replica read_replica(TomlFields& fields) {
  Replica replica;
  replica.micro_batch_size = static_cast<int>(fields.count("micro_batch_size"));
  replica.micro_batches = static_cast<int>(fields.count("micro_batches"));
  for (TomlFields& stage : fields.tables("stage")) {
    // A number for each chunk; a stage of one chunk has its layers alone.
    std::vector<int> chunks = stage.count_or_counts("layers");
    const int layers = std::accumulate(chunks.begin(), chunks.end(), 0);
    if (chunks.size() == 1) chunks.clear();
    replica.stages.push_back({layers, stage.text("node"),
                              static_cast<int>(stage.count_or("tensor_parallel", 1)), 0, std::move(chunks),
                              stage.not_negative_or("optimizer_shard_weight", 1)});
    read_recomputation(stage, replica.stages.back());
    stage.end();
  }
  fields.end();
  return replica;
}

// These fields are at the top level of a plan's file.
void read_runtime(TomlFields& fields, Runtime& runtime) {
  const std::string schedule = fields.text_or("schedule", schedule_name(runtime.schedule));
  const Result<ScheduleKind> kind = training::schedule_of(schedule);
  if (!kind.is_ok())
    fields.fail("schedule", kind.status().message());
  else
    runtime.schedule = kind.value();
  const std::string reduction = fields.text_or("reduction", reduction_name(runtime.reduction));
  if (reduction == reduction_name(ReductionKind::kHdt))
    runtime.reduction = ReductionKind::kHdt;
  else if (reduction != reduction_name(ReductionKind::kRing))
    fields.fail("reduction", fmt::format("'{}' given, expected hdt or ring", reduction));
  runtime.background_send_bytes = fields.optional_size("background_send_bytes");
  runtime.lockstep_exchange = fields.flag_or("lockstep_exchange", runtime.lockstep_exchange);
  if (runtime.lockstep_exchange && runtime.background_send_bytes)
    fields.fail("background_send_bytes",
                "given beside lockstep_exchange, in which no send is in the background");
  runtime.overlap_gradients = fields.flag_or("overlap_gradients", runtime.overlap_gradients);
  runtime.bucket_bytes = fields.count_or("bucket_bytes", runtime.bucket_bytes);
  runtime.use_distributed_optimizer =
      fields.flag_or("use_distributed_optimizer", runtime.use_distributed_optimizer);
}

// A TOML value as base/config reads values. What it has no type for becomes Foreign, which every key
// refuses with a message.
config::RawValue raw_value(const toml::node& node) {
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto integer = node.value_exact<int64_t>()) return *integer;
  const toml::array* list = node.as_array();
  std::vector<std::string> entries;
  for (size_t i = 0; list && i < list->size(); ++i) {
    const auto text = list->get(i)->value_exact<std::string>();
    if (!text) return config::Foreign{"a list that is not one of texts"};
    entries.push_back(*text);
  }
  if (list) return entries;
  return config::Foreign{"something else"};
}

// Applies the daemon's own rules to [class.NAME], so that a plan's classes are what hdtcommd accepts.
// Whether their values fit the cluster is checked by check_classes(). The first call makes the class
// even if its table is empty.
Status read_classes(const std::string& path, TomlFields& fields, Plan& plan) {
  Config config;
  for (const auto& [name, table] : fields.named_tables("class")) {
    HDT_RETURN_IF_ERROR(config::apply({config::kClassSection, name, "", config::Foreign{}, path}, config));
    for (const auto& [key, value] : *table)
      HDT_RETURN_IF_ERROR(config::apply(
          {config::kClassSection, name, std::string(key.str()), raw_value(value), path}, config));
  }
  plan.classes = std::move(config.classes);
  return Status::ok();
}

}  // namespace

Result<Model> read_model(const std::string& path) {
  Result<Model> model = read_toml<Model>(path, [](TomlFields& fields) {
    Model result;
    result.name = fields.text("name");
    result.state_factor = fields.positive("state_factor");
    result.optimizer_factor = fields.positive_or("optimizer_factor", result.state_factor / 2);
    result.tied_parameter_bytes =
        bytes_by_degree(fields, "tied_parameter_bytes", fields.points_or_none("tied_parameter_bytes"));
    result.types.parameters = number_type(fields, "parameter_type", result.types.parameters);
    result.types.gradients = number_type(fields, "gradient_type", result.types.parameters);
    for (TomlFields& layer : fields.tables("layer")) result.layers.push_back(read_layer(layer));
    return result;
  });
  if (model.is_ok()) HDT_RETURN_IF_ERROR(in_file(path, check_model(model.value())));
  return model;
}

// Whether the profile covers a model is checked by check_profile(), when the model is known.
Result<Profile> read_profile(const std::string& path) {
  return read_toml<Profile>(path, [](TomlFields& fields) {
    Profile profile;
    profile.name = fields.text("name");
    profile.overlap_slowdown = fields.positive_or("overlap_slowdown", profile.overlap_slowdown);
    if (profile.overlap_slowdown < 1)
      fields.fail("overlap_slowdown", fmt::format("{} given, expected at least 1", profile.overlap_slowdown));
    std::vector<TomlFields> collective = fields.tables("collective", 0);
    if (collective.size() > 1) fields.fail("collective", "given twice");
    for (TomlFields& entry : collective) read_collective(entry, profile.collective);
    for (TomlFields& entry : fields.tables("compute")) read_compute(entry, profile);
    for (TomlFields& entry : fields.tables("overlap", 0)) read_overlap(entry, profile);
    for (TomlFields& entry : fields.tables("memory", 0)) read_memory(entry, profile);
    for (TomlFields& entry : fields.tables("link", 0)) read_link(entry, profile);
    return profile;
  });
}

namespace {

// The maximum number of nodes of a cluster, over all tables of its file. Without it a short file could take
// all memory.
constexpr int64_t kMaxNodes = 16'384;

}  // namespace

Result<Cluster> read_cluster(const std::string& path) {
  Result<Cluster> cluster = read_toml<Cluster>(path, [](TomlFields& fields) {
    Cluster result;
    for (TomlFields& entry : fields.tables("nic", 0)) {
      result.nics.push_back({entry.text("name"), entry.texts("backends"), entry.texts("interfaces")});
      entry.end();
    }
    for (TomlFields& entry : fields.tables("node")) {
      const Node node{entry.text("name"), entry.text("device"), static_cast<int>(entry.count("devices")),
                      entry.size("memory_bytes"), entry.texts_or_none("nics")};
      const int64_t count = entry.count_or("count", 1);
      entry.end();
      // A table with `count` stands for so many nodes that are alike, with the names name-1, name-2, ...
      // Reading goes on after an error, without them.
      const int64_t room = kMaxNodes - static_cast<int64_t>(result.nodes.size());
      if (count > room) {
        entry.fail("count", fmt::format("{} given, expected at most {} nodes in all", count, kMaxNodes));
        continue;
      }
      for (int64_t i = 1; i <= count; ++i) {
        result.nodes.push_back(node);
        if (count > 1) result.nodes.back().name = fmt::format("{}-{}", node.name, i);
      }
    }
    return result;
  });
  if (cluster.is_ok()) HDT_RETURN_IF_ERROR(in_file(path, check_cluster(cluster.value())));
  return cluster;
}

Plan read_plan_fields(TomlFields& fields) {
  Plan plan;
  read_runtime(fields, plan.runtime);
  for (TomlFields& replica : fields.tables("replica")) plan.replicas.push_back(read_replica(replica));
  return plan;
}

Result<Plan> read_plan(const std::string& path) {
  // The classes' errors are not TomlErrors. They are returned after those of the fields, which come
  // first in the file.
  Status classes;
  Result<Plan> read = read_toml<Plan>(path, [&](TomlFields& fields) {
    Plan plan = read_plan_fields(fields);
    classes = read_classes(path, fields, plan);
    return plan;
  });
  if (!read.is_ok()) return read;
  HDT_RETURN_IF_ERROR(classes);
  HDT_RETURN_IF_ERROR(in_file(path, check_replicas(read.value())));
  return read;
}

}  // namespace hdt::plan
