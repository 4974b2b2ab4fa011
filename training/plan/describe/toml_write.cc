// toml_write.cc: the writers. fmt prints a double with as many digits as are needed to read back the
// same number. A field is left out if the reader would refuse its default, as it refuses an infinite
// rate.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <string_view>

#include "base/join.h"
#include "training/plan/describe/toml_fields.h"
#include "training/plan/describe/toml_files.h"

namespace hdt::plan {

// TOML's basic strings: quotes and backslashes are escaped, and control characters are written by their
// number.
std::string in_quotes(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<int>(c));
    else
      out += c;
  }
  return out + '"';
}

std::string quoted_list(const std::vector<std::string>& texts) {
  return "[" + join(texts, ", ", in_quotes) + "]";
}

std::string to_toml(const Model& model) {
  std::string out = fmt::format("name = {}\nstate_factor = {}\noptimizer_factor = {}\n",
                                in_quotes(model.name), model.state_factor, model.optimizer_factor);
  // A model of another program does not say its types.
  if (model.types != training::NumberTypes())
    out += fmt::format("parameter_type = \"{}\"\ngradient_type = \"{}\"\n",
                       training::number_type_name(model.types.parameters),
                       training::number_type_name(model.types.gradients));
  if (model.has_tied_unit()) {
    out += "tied_parameter_bytes = [";
    for (const auto& [degree, bytes] : model.tied_parameter_bytes)
      out += fmt::format("[{}, {}], ", degree, bytes);
    out += "]\n";
  }
  for (const LayerKind& kind : model.layers) {
    out += fmt::format("\n[[layer]]\nkind = {}\ncount = {}\noutput_bytes = {}\nparameter_bytes = [",
                       in_quotes(kind.name), kind.count, kind.output_bytes);
    for (const auto& [degree, bytes] : kind.parameter_bytes) out += fmt::format("[{}, {}], ", degree, bytes);
    out += "]\n";
    if (!kind.forward_sums.empty())
      out += fmt::format("forward_sums = [{}]\n", fmt::join(kind.forward_sums, ", "));
    if (!kind.backward_sums.empty())
      out += fmt::format("backward_sums = [{}]\n", fmt::join(kind.backward_sums, ", "));
  }
  return out;
}

// The reader takes each array of tables as a whole, so the order of the tables is free.
std::string to_toml(const Profile& profile) {
  std::string out =
      fmt::format("name = {}\noverlap_slowdown = {}\n", in_quotes(profile.name), profile.overlap_slowdown);
  const CollectiveFigures& figures = profile.collective;
  out += fmt::format("\n[[collective]]\nstep_overhead = {}\npiece_bytes = {}\n", figures.step_overhead,
                     figures.piece_bytes);
  // Infinity means "not measured", and the reader accepts no infinite number.
  if (std::isfinite(figures.reduce_rate)) out += fmt::format("reduce_rate = {}\n", figures.reduce_rate);
  if (std::isfinite(figures.copy_rate)) out += fmt::format("copy_rate = {}\n", figures.copy_rate);
  for (const auto& [device, slowdown] : profile.overlap_slowdowns)
    out += fmt::format("\n[[overlap]]\ndevice = {}\nslowdown = {}\n", in_quotes(device), slowdown);
  for (const auto& [device, bytes] : profile.fixed_bytes)
    out += fmt::format("\n[[memory]]\ndevice = {}\nfixed_bytes = {}\n", in_quotes(device), bytes);
  for (const auto& [key, cost] : profile.compute) {
    if (cost.derived) continue;
    out += fmt::format(
        "\n[[compute]]\ndevice = {}\nlayer = {}\ntensor_parallel = {}\nmicro_batch_size = {}\nforward = {}\n"
        "input_gradient = {}\nweight_gradient = {}\nupdate = {}\nactivation_bytes = {}\n",
        in_quotes(key.device), in_quotes(key.layer), key.tensor_parallel, key.micro_batch_size, cost.forward,
        cost.input_gradient, cost.weight_gradient, cost.update, cost.activation_bytes);
    if (cost.recomputed_attention)
      out +=
          fmt::format("selective_more_seconds = {}\nselective_activation_bytes = {}\n",
                      cost.recomputed_attention->more_seconds, cost.recomputed_attention->activation_bytes);
  }
  for (const auto& [key, link] : profile.links) {
    out += fmt::format("\n[[link]]\nfrom = {}\nto = {}\ninside = {}\n", in_quotes(key.from),
                       in_quotes(key.to), key.inside);
    if (!key.nic.empty()) out += fmt::format("nic = {}\n", in_quotes(key.nic));
    out += fmt::format("latency = {}\nbandwidth = [", link.latency);
    for (const auto& [bytes, rate] : link.bandwidth) out += fmt::format("[{}, {}], ", bytes, rate);
    out += "]\n";
    if (link.allreduce.empty()) continue;
    out += "allreduce = [";
    for (const auto& [bytes, rate] : link.allreduce) out += fmt::format("[{}, {}], ", bytes, rate);
    out += "]\n";
  }
  return out;
}

// Each node gets a table of its own, even if it was read from one with a `count`.
std::string to_toml(const Cluster& cluster) {
  std::string out;
  for (const NicKind& nic : cluster.nics)
    out += fmt::format("{}[[nic]]\nname = {}\nbackends = {}\ninterfaces = {}\n", out.empty() ? "" : "\n",
                       in_quotes(nic.name), quoted_list(nic.backends), quoted_list(nic.interfaces));
  for (const Node& node : cluster.nodes) {
    out += fmt::format("{}[[node]]\nname = {}\ndevice = {}\ndevices = {}\nmemory_bytes = {}\n",
                       out.empty() ? "" : "\n", in_quotes(node.name), in_quotes(node.device), node.devices,
                       node.memory_bytes);
    if (!node.nics.empty()) out += fmt::format("nics = {}\n", quoted_list(node.nics));
  }
  return out;
}

std::string to_toml(const Plan& plan) {
  const Runtime& runtime = plan.runtime;
  std::string out = fmt::format("schedule = {}\n", in_quotes(schedule_name(runtime.schedule)));
  out += fmt::format("reduction = {}\n", in_quotes(reduction_name(runtime.reduction)));
  if (runtime.background_send_bytes)
    out += fmt::format("background_send_bytes = {}\n", *runtime.background_send_bytes);
  if (runtime.lockstep_exchange) out += "lockstep_exchange = true\n";
  out += fmt::format("overlap_gradients = {}\nbucket_bytes = {}\n", runtime.overlap_gradients,
                     runtime.bucket_bytes);
  if (runtime.use_distributed_optimizer) out += "use_distributed_optimizer = true\n";
  for (const auto& [name, settings] : plan.classes) {
    out += fmt::format("\n[class.{}]\nbackends = {}\nnics = {}\nalgorithm = {}\npriority = {}\nweight = {}\n",
                       name, quoted_list(settings.backends), quoted_list(settings.nics),
                       in_quotes(settings.algorithm), in_quotes(settings.priority), settings.weight);
  }
  for (const Replica& replica : plan.replicas) {
    out += fmt::format("\n[[replica]]\nmicro_batch_size = {}\nmicro_batches = {}\n", replica.micro_batch_size,
                       replica.micro_batches);
    for (const Stage& stage : replica.stages) {
      const std::string layers = stage.chunk_layers.empty()
                                     ? fmt::format("{}", stage.layers)
                                     : fmt::format("[{}]", fmt::join(stage.chunk_layers, ", "));
      out += fmt::format("\n  [[replica.stage]]\n  layers = {}\n  node = {}\n  tensor_parallel = {}\n",
                         layers, in_quotes(stage.node), stage.tensor_parallel);
      if (stage.recomputed_layers > 0)
        out += fmt::format("  recompute_layers = {}\n", stage.recomputed_layers);
      if (stage.attention_only)
        out += fmt::format("  recompute_granularity = {}\n", in_quotes(kSelectiveGranularity));
      if (stage.optimizer_shard_weight != 1)
        out += fmt::format("  optimizer_shard_weight = {}\n", stage.optimizer_shard_weight);
    }
  }
  return out;
}

}  // namespace hdt::plan
