// published_set.cc: reads the plans of a published set, and builds a cluster that has every machine they
// name.
#include "training/plan/validate/published_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>

#include "training/plan/validate/published_json.h"

namespace hdt::plan {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// NCCL's buffer of a connection (NCCL_BUFFSIZE). The sender does not wait for messages that fit in it.
constexpr int64_t kCommunicatorBufferBytes = int64_t{4} << 20;

// The measured plans ran under DeepSpeed, which reduces gradients after the last backward.
Runtime deepspeed_runtime() {
  Runtime runtime;
  runtime.schedule = ScheduleKind::kLockstep;
  runtime.reduction = ReductionKind::kRing;
  runtime.background_send_bytes = kCommunicatorBufferBytes;
  runtime.overlap_gradients = false;
  return runtime;
}

// A plan as it was published; `path` is for messages and for the row's name.
struct PlanFile {
  std::string path;
  json content;

  const json& pipeline() const { return content.at("pipeline_list").at(0); }
};

// The machine of a stage: [[[kind, GPUs, zone]], tensor-parallel degree].
const json& machine_of(const PlanFile& file, size_t stage, size_t replica) {
  return file.pipeline().at("tmp_per_stage").at(stage).at(replica);
}

// Each (stage, replica) has a machine of its own. Those of a kind are numbered within the plan, so all
// plans of the set share the cluster's nodes.
std::string node_name(const std::string& kind, int number) { return fmt::format("{}-{}", kind, number); }

// Adds the plan's machines to `cluster`. The micro-batches of a step are shared equally among the
// replicas.
Measurement measurement_of(const PlanFile& file, Cluster& cluster) {
  Measurement row;
  // "plan_config_N4_D2.json" is the row "N4_D2".
  row.name = file.path.substr(file.path.rfind("plan_config_") + 12);
  row.name = row.name.substr(0, row.name.rfind('.'));
  row.step_seconds = file.content.at("real").get<double>();
  row.peak_memory_bytes = file.content.at("max_mem").get<int64_t>();
  row.plan.runtime = deepspeed_runtime();
  const json& layers = file.pipeline().at("layers_per_stage");
  const size_t replicas = file.pipeline().at("tmp_per_stage").at(0).size();
  const int size = file.content.at("mbs").get<int>();
  const int batch = file.content.at("gbs").get<int>();
  const int per_round = size * static_cast<int>(replicas);
  // All replicas of a published plan have the same number of micro-batches, so the batch must be
  // divisible.
  if (!(row.step_seconds > 0) || row.peak_memory_bytes <= 0 || per_round <= 0 || batch % per_round != 0)
    throw BrokenSet("expected positive real and max_mem, and a gbs that replicas and mbs divide");
  std::map<std::string, int> used;
  for (size_t replica = 0; replica < replicas; ++replica) {
    row.plan.replicas.push_back({size, batch / per_round, {}});
    for (size_t stage = 0; stage < layers.size(); ++stage) {
      const json& machine = machine_of(file, stage, replica);
      const std::string kind = machine.at(0).at(0).at(0);
      const int devices = machine.at(0).at(0).at(1);
      const std::string node = node_name(kind, ++used[kind]);
      // The set does not say how much memory the devices have, so every plan fits.
      if (cluster.index_of(node) < 0)
        cluster.nodes.push_back({node, kind, devices, std::numeric_limits<int64_t>::max()});
      Node& known = cluster.nodes[cluster.index_of(node)];
      known.devices = std::max(known.devices, devices);
      // The published lists count the embedding and the head as layers of the first and the last stage.
      int transformer_layers = static_cast<int>(layers.at(stage).size());
      if (stage == 0) --transformer_layers;
      if (stage + 1 == layers.size()) --transformer_layers;
      row.plan.replicas.back().stages.push_back({transformer_layers, node, machine.at(1).get<int>()});
    }
  }
  return row;
}

// If two rows have identical measurements, one of them must be a copy. The reported time of gradient
// reduction fits the plan with more replicas, so the one with fewer is left out.
void leave_out_copies(std::vector<Measurement>& rows) {
  for (Measurement& row : rows) {
    for (const Measurement& other : rows) {
      if (row.step_seconds == other.step_seconds && row.peak_memory_bytes == other.peak_memory_bytes &&
          row.plan.replicas.size() < other.plan.replicas.size())
        row.left_out = "same measurements as " + other.name;
    }
  }
}

PublishedSet import_set(const fs::path& folder, const PublishedFiles& files) {
  PublishedSet set;
  set.name = folder.filename().string();
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::ranges::sort(paths);
  if (paths.empty()) throw BrokenSet(folder.string() + ": no plan in it");
  size_t units = 0;
  std::string zone;
  // The model's number of units and the zone are the same in all plans of a folder; those of the last
  // one count.
  for (const std::string& path : paths) {
    const PlanFile file{path, read_json(path)};
    try {
      set.rows.push_back(measurement_of(file, set.cluster));
      zone = file.content.at("zone");
      units = 0;
      for (const json& stage : file.pipeline().at("layers_per_stage")) units += stage.size();
    } catch (const std::exception& error) {
      throw BrokenSet(path + ": " + error.what());
    }
  }
  leave_out_copies(set.rows);
  // The profile is read for the device kinds that the plans use.
  const std::vector<std::string> devices = set.cluster.device_kinds();
  const std::string model = published_model_name(files, devices, units);
  set.model = published_model(files, model, units);
  set.profile = published_profile(files, model, units, devices, zone);
  for (const Measurement& row : set.rows) {
    const Status status = check_plan(row.plan, set.cluster, set.model, set.profile);
    if (!status.is_ok())
      throw BrokenSet(fmt::format("{}/{}: {}", folder.string(), row.name, status.message()));
  }
  return set;
}

}  // namespace

Result<std::vector<PublishedSet>> import_published_sets(const std::string& folder) {
  try {
    const PublishedFiles files{read_json(folder + "/profiles.json"), read_json(folder + "/links.json"),
                               read_json(folder + "/llm_info.json")};
    std::vector<fs::path> folders;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.is_directory() && entry.path().filename().string().starts_with("plans-"))
        folders.push_back(entry.path());
    }
    std::ranges::sort(folders);
    if (folders.empty()) return Status(Code::kConfig, folder + ": no folder plans-* in it");
    std::vector<PublishedSet> sets;
    for (const fs::path& entry : folders) sets.push_back(import_set(entry, files));
    return sets;
  } catch (const BrokenSet& error) {
    return Status(Code::kConfig, error.what());
  } catch (const std::exception& error) {  // a file that changes or a field of another type
    return Status(Code::kConfig, folder + ": " + error.what());
  }
}

}  // namespace hdt::plan
