// recompute_flags.cc: what a stage computes again for its backward.
//
// Megatron's values that the engine does not have are read, and refused by name: its scripts name them, and
// to ignore them would need more memory than the script counts on.
#include "tools/hdt-train/recompute_flags.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "tools/common/flag_checks.h"

namespace hdt::tools {
namespace {

constexpr int kMostLayers = 1'000'000;

Status refuse(std::string reason) { return {Code::kInvalidArgument, std::move(reason)}; }

}  // namespace

void add_recomputation(CLI::App& app, RecomputeFlags& recompute) {
  app.add_option(
         "--recompute-granularity", recompute.granularity,
         "less memory, more time, the same bits. full: some layers keep only their input, and their "
         "backward runs their forward again; selective: all layers keep queries, keys and values, and "
         "compute attention again (default: all layers keep their activations)")
      ->type_name("NAME");
  app.add_option("--recompute-method", recompute.method,
                 "block: the first --recompute-num-layers layers of each stage; uniform: every layer")
      ->type_name("NAME");
  app.add_option("--recompute-num-layers", recompute.num_layers,
                 "with block: layers of each stage; a stage that has fewer recomputes all")
      ->check(whole(1, kMostLayers));
}

Status take_recomputation(const RecomputeFlags& recompute, TrainFlags& flags) {
  const std::string& granularity = recompute.granularity;
  const std::string& method = recompute.method;
  if (granularity.empty()) {
    if (method.empty() && !recompute.num_layers) return Status::ok();
    return refuse(fmt::format("{}: expected --recompute-granularity full, found none",
                              method.empty() ? "--recompute-num-layers" : "--recompute-method"));
  }
  if (granularity == "selective") {
    if (!method.empty() || recompute.num_layers)
      return refuse(
          fmt::format("{}: expected none with --recompute-granularity selective, which is of all layers",
                      method.empty() ? "--recompute-num-layers" : "--recompute-method"));
    flags.recompute_attention = true;
    return Status::ok();
  }
  if (granularity != "full")
    return refuse(
        fmt::format("--recompute-granularity: '{}' given, expected full or selective", granularity));
  if (method == "uniform") {
    // Megatron's chunks of several layers would keep fewer inputs, and need all graphs of a chunk at once.
    if (recompute.num_layers.value_or(1) != 1)
      return refuse(
          fmt::format("--recompute-num-layers: {} given, expected 1 with --recompute-method uniform: "
                      "each layer is recomputed from its own input",
                      *recompute.num_layers));
    flags.recomputed_layers = std::numeric_limits<int>::max();
    return Status::ok();
  }
  if (method != "block")
    return refuse(fmt::format("--recompute-method: {} given, expected block or uniform",
                              method.empty() ? "none" : "'" + method + "'"));
  if (!recompute.num_layers)
    return refuse("--recompute-num-layers: none given, expected the layers of a stage to recompute");
  flags.recomputed_layers = *recompute.num_layers;
  return Status::ok();
}

}  // namespace hdt::tools
