// figures_file.h: the file in which a daemon keeps its measurements, so that a restart does not measure
// again (figures.json in node.state_folder). It is JSON. A file that does not read as that, or whose
// numbers make no sense, is as if it were not there.
//
// Control loads it at the start, and saves it after each measurement.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "base/status.h"
#include "ipc/measurements.h"

namespace hdt::daemon {

// All measurements of a node.
struct KnownFigures {
  // of this node's memory
  session::MemoryRates memory;
  // of each link, by the name of the other node and the number of the engine. The name is followed by
  // "/BACKEND" if that is not tcp.
  std::map<std::pair<std::string, uint32_t>, session::LinkRates> links;
  bool operator==(const KnownFigures&) const = default;
};

// An empty result if there is no file. kInvalidArgument: the file is damaged; kSystem: it cannot be
// read.
Result<KnownFigures> load_figures(const std::string& path);
// Replaces the file in one step, so a reader sees the old or the new one. kSystem: it could not be
// written; the old one stays.
Status save_figures(const std::string& path, const KnownFigures& figures);

}  // namespace hdt::daemon
