// training_state.cc: the JSON of training_state.json and of shard summaries. Every field is checked for its
// type and its range before it is used; names of files cannot lead out of the checkpoint's folder.
#include "training/checkpoint/training_state.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "base/foreign_json.h"
#include "base/sha256_stream.h"
#include "training/checkpoint/paths.h"
#include "training/checkpoint/tensor_json.h"

namespace hdt::training {
namespace {

using nlohmann::json;

constexpr char kKeyVersion[] = "version";
constexpr char kKeyLossScale[] = "loss_scale";

Status state_refused(std::string reason) { return {Code::kInvalidArgument, std::move(reason)}; }

json to_json(const TensorRecord& record, bool with_shard) {
  json object = {{"dtype", dtype_name(record.dtype)}, {"shape", record.shape}, {"sha256", record.hash}};
  if (with_shard) object["shard"] = record.shard;
  return object;
}

// All of a record but its shard.
Result<TensorRecord> record_of(const std::string& name, const json& object) {
  if (!is_tensor_name(name)) return state_refused("a tensor has a name that is none");
  auto type = parse_dtype_and_shape(name, object);
  if (!type.is_ok()) return type.status();
  auto hash = json_text(object, "sha256");
  if (!hash.is_ok()) return tensor_refused(name, hash.status().message());
  if (!is_sha256_text(hash.value())) return tensor_refused(name, "'sha256' is not 64 hex digits");
  return TensorRecord{"", type.value().dtype, std::move(type.value().shape), hash.take()};
}

Result<WrittenShard> written_shard_of(const json& object) {
  WrittenShard shard;
  const auto kind = json_text(object, "kind");
  if (!kind.is_ok()) return kind.status();
  if (kind.value() == shard_kind_name(ShardKind::kOptimizer)) {
    shard.kind = ShardKind::kOptimizer;
  } else if (kind.value() != shard_kind_name(ShardKind::kModel)) {
    return state_refused("'kind' is neither model nor optimizer");
  }
  auto file = json_text(object, "file");
  if (!file.is_ok()) return file.status();
  if (!is_shard_file_name(file.value())) return state_refused("'file' is no name of a shard");
  shard.file = file.take();
  const auto bytes = json_number(object, "bytes");
  if (!bytes.is_ok()) return bytes.status();
  shard.bytes = bytes.value();
  const auto tensors = json_object(object, "tensors");
  if (!tensors.is_ok()) return tensors.status();
  for (const auto& [name, fields] : tensors.value()->items()) {
    auto record = record_of(name, fields);
    if (!record.is_ok()) return record.status();
    record.value().shard = shard.file;
    shard.tensors.emplace(name, record.take());
  }
  return shard;
}

Status read_texts(const json& object, const char* key, std::map<std::string, std::string>& texts) {
  const auto member = json_object(object, key);
  if (!member.is_ok()) return member.status();
  for (const auto& [name, value] : member.value()->items()) {
    if (!value.is_string()) return state_refused(fmt::format("'{}' is no object of texts", key));
    texts.emplace(name, value.get<std::string>());
  }
  return Status::ok();
}

constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

json to_json(const LossScaleState& state) {
  return {{"scale", state.scale},
          {"good_steps", state.good_steps},
          {"hysteresis_left", state.hysteresis_left},
          {"skipped_steps", state.skipped_steps}};
}

// After the step has been read: no more steps are skipped than were done.
Status read_loss_scale(const json& object, TrainingState& state) {
  const auto fields = json_object(object, kKeyLossScale);
  if (!fields.is_ok()) return fields.status();
  const auto scale = json_member(*fields.value(), "scale");
  if (!scale.is_ok()) return scale.status();
  if (!scale.value()->is_number()) return state_refused("'scale' is no number");
  state.loss_scale.scale = scale.value()->get<double>();
  if (!std::isfinite(state.loss_scale.scale) || state.loss_scale.scale < 0)
    return state_refused("'scale' is not finite, or below 0");
  const auto done = static_cast<uint64_t>(state.step);
  for (const auto& [key, number, most] :
       {std::tuple{"good_steps", &state.loss_scale.good_steps, done},
        std::tuple{"hysteresis_left", &state.loss_scale.hysteresis_left, kMost},
        std::tuple{"skipped_steps", &state.loss_scale.skipped_steps, done}}) {
    const auto read = json_number(*fields.value(), key, most);
    if (!read.is_ok()) return read.status();
    *number = static_cast<int64_t>(read.value());
  }
  return Status::ok();
}

Result<TrainingState> state_of(const json& object) {
  TrainingState state;
  const auto step = json_number(object, "step", kMost);
  if (!step.is_ok()) return step.status();
  const auto seed = json_number(object, "seed");
  if (!seed.is_ok()) return seed.status();
  const auto samples = json_number(object, "consumed_samples", kMost);
  if (!samples.is_ok()) return samples.status();
  state.step = static_cast<int64_t>(step.value());
  state.seed = seed.value();
  state.consumed_samples = static_cast<int64_t>(samples.value());
  HDT_RETURN_IF_ERROR(read_texts(object, "fingerprint", state.fingerprint));
  // Checkpoints of earlier versions have no settings.
  if (object.contains("settings")) HDT_RETURN_IF_ERROR(read_texts(object, "settings", state.settings));
  if (object.contains(kKeyLossScale)) HDT_RETURN_IF_ERROR(read_loss_scale(object, state));
  return state;
}

}  // namespace

const char* shard_kind_name(ShardKind kind) { return kind == ShardKind::kModel ? "model" : "optimizer"; }

std::string to_text(const ShardSummary& summary) {
  json shards = json::array();
  for (const WrittenShard& shard : summary.shards) {
    json tensors = json::object();
    for (const auto& [name, record] : shard.tensors) tensors[name] = to_json(record, false);
    shards.push_back({{"kind", shard_kind_name(shard.kind)},
                      {"file", shard.file},
                      {"bytes", shard.bytes},
                      {"tensors", std::move(tensors)}});
  }
  return json{{"step", summary.step}, {"rank", summary.rank}, {"shards", std::move(shards)}}.dump();
}

Result<ShardSummary> parse_shard_summary(std::string_view bytes) {
  const auto parsed = parse_foreign_json_once(bytes, kMostStateBytes);
  if (!parsed.is_ok()) return state_refused("the summary of a shard: " + parsed.status().message());
  ShardSummary summary;
  const auto step = json_number(parsed.value(), "step", std::numeric_limits<int64_t>::max());
  if (!step.is_ok()) return step.status();
  const auto rank = json_number(parsed.value(), "rank", std::numeric_limits<int>::max());
  if (!rank.is_ok()) return rank.status();
  summary.step = static_cast<int64_t>(step.value());
  summary.rank = static_cast<int>(rank.value());
  const auto shards = json_member(parsed.value(), "shards");
  if (!shards.is_ok()) return shards.status();
  if (!shards.value()->is_array()) return state_refused("'shards' is no array");
  for (const json& object : *shards.value()) {
    auto shard = written_shard_of(object);
    if (!shard.is_ok()) return shard.status();
    summary.shards.push_back(shard.take());
  }
  return summary;
}

std::string to_text(const CheckpointContents& contents) {
  json tensors = json::object();
  for (const auto& [name, record] : contents.tensors) tensors[name] = to_json(record, true);
  json object = {{kKeyVersion, kCheckpointVersion},
                 {"step", contents.state.step},
                 {"seed", contents.state.seed},
                 {"consumed_samples", contents.state.consumed_samples},
                 {"fingerprint", contents.state.fingerprint},
                 {"settings", contents.state.settings},
                 {"shards", contents.shards},
                 {"tensors", std::move(tensors)}};
  if (contents.state.loss_scale != LossScaleState())
    object[kKeyLossScale] = to_json(contents.state.loss_scale);
  return object.dump(1) + "\n";
}

Result<CheckpointContents> parse_checkpoint_contents(std::string_view bytes) {
  const auto parsed = parse_foreign_json_once(bytes, kMostStateBytes);
  if (!parsed.is_ok()) return parsed.status();
  const json& object = parsed.value();
  const auto version = json_number(object, kKeyVersion);
  if (!version.is_ok()) return version.status();
  if (version.value() != kCheckpointVersion) {
    return Status(Code::kVersion, fmt::format("its version is {}, this program reads version {}",
                                              version.value(), kCheckpointVersion));
  }
  CheckpointContents contents;
  auto state = state_of(object);
  if (!state.is_ok()) return state.status();
  contents.state = state.take();
  const auto shards = json_object(object, "shards");
  if (!shards.is_ok()) return shards.status();
  for (const auto& [file, size] : shards.value()->items()) {
    if (!is_shard_file_name(file)) return state_refused(fmt::format("'{}' is no name of a shard", file));
    if (!size.is_number_unsigned())
      return state_refused(fmt::format("the size of shard {} is no number", file));
    contents.shards.emplace(file, size.get<uint64_t>());
  }
  const auto tensors = json_object(object, "tensors");
  if (!tensors.is_ok()) return tensors.status();
  for (const auto& [name, fields] : tensors.value()->items()) {
    auto record = record_of(name, fields);
    if (!record.is_ok()) return record.status();
    auto shard = json_text(fields, "shard");
    if (!shard.is_ok()) return tensor_refused(name, shard.status().message());
    if (!contents.shards.contains(shard.value())) {
      return tensor_refused(name, "its shard is not listed in 'shards'");
    }
    record.value().shard = shard.take();
    contents.tensors.emplace(name, record.take());
  }
  return contents;
}

}  // namespace hdt::training
