// inputs.cc: reads one file after the other; the first error ends it.
#include "tools/hdt-plan/inputs.h"

#include <fmt/format.h>

#include <cstdio>

#include "training/plan/describe/toml_files.h"

namespace hdt::tools {

Result<Inputs> read_inputs(const InputPaths& paths) {
  auto profile = plan::read_profile(paths.profile);
  if (!profile.is_ok()) return profile.status();
  auto cluster = plan::read_cluster(paths.cluster);
  if (!cluster.is_ok()) return cluster.status();
  auto model = plan::read_model(paths.model);
  if (!model.is_ok()) return model.status();
  // Neither file is wrong by itself. The profile is named, since it is the one to complete.
  const Status complete = plan::check_profile(profile.value(), model.value());
  if (!complete.is_ok()) return Status(complete.code(), paths.profile + ": " + complete.message());
  Inputs inputs{profile.take(), cluster.take(), model.take(), {}};
  if (!paths.calibration.empty()) {
    auto calibration = plan::read_calibration(paths.calibration);
    if (!calibration.is_ok()) return calibration.status();
    inputs.calibration =
        plan::calibration_for(calibration.value(), inputs.model.name, inputs.cluster.device_kinds());
    if (!inputs.calibration.foreign.empty())
      fmt::print(stderr, "hdt-plan: warning: {}\n", inputs.calibration.foreign);
  }
  return inputs;
}

}  // namespace hdt::tools
