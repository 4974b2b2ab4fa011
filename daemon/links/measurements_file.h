// measurements_file.h: the file in which a daemon keeps its measurements, so that a restart does not measure
// again (measurements.json in node.state_folder). It is JSON. A file that does not read as that, or whose
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
struct KnownMeasurements {
  // of this node's memory
  ipc::MemoryRates memory;
  // of each link, by the name of the other node and the number of the engine. The name is followed by
  // "/BACKEND" if that is not tcp.
  std::map<std::pair<std::string, uint32_t>, ipc::LinkRates> links;
  bool operator==(const KnownMeasurements&) const = default;
};

// An empty result if there is no file. kInvalidArgument: the file is damaged; kSystem: it cannot be
// read.
Result<KnownMeasurements> load_measurements(const std::string& path);
// Replaces the file in one step, so a reader sees the old or the new one. kSystem: it could not be
// written; the old one stays.
Status save_measurements(const std::string& path, const KnownMeasurements& measurements);

}  // namespace hdt::daemon
