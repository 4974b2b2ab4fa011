// figures_file.h: what a daemon has measured, kept between its runs, so that a restart does not measure
// again. JSON; what does not read as that, or makes no sense, is as if it were not there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/status.h"
#include "ipc/measurements.h"

namespace hdt::daemon {

struct KnownFigures {
  session::MemoryRates memory;
  // By name of the other node, with "/BACKEND" behind it where that is not tcp, and number of the engine.
  std::map<std::pair<std::string, uint32_t>, session::LinkRates> links;
  bool operator==(const KnownFigures&) const = default;
};

// kInvalidArgument: the file is damaged. A file that is not there is no failure.
Result<KnownFigures> load_figures(const std::string& path);
// Replaces the file in one step: a reader sees the old or the new one.
Status save_figures(const std::string& path, const KnownFigures& figures);

}  // namespace hdt::daemon
