// published_set.h: published measurements of training steps, with the profile from which they are
// predicted: what the predictor is compared with. docs/predictor.md describes the format of the folder.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/model.h"
#include "training/plan/describe/plan.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

// One row: a plan and what was measured of it.
struct Measurement {
  std::string name;
  Plan plan;
  // Measured.
  double step_seconds = 0;
  // Measured, on the device that needs the most; 0: not measured.
  int64_t peak_memory_bytes = 0;
  // The reason why the row does not count. Empty: it counts.
  std::string left_out;
};

// Rows that share a model, a profile and a cluster.
struct PublishedSet {
  std::string name;
  Model model;
  Profile profile;
  Cluster cluster;
  std::vector<Measurement> rows;
  // Sentences on micro-batch sizes of rows that lie outside of the profile's (micro_batch_sizes.h).
  std::vector<std::string> warnings = {};
};

// One set for each folder plans-* of `folder`, in the order of their names. kConfig, with file, field
// and reason, if a file is missing or broken.
Result<std::vector<PublishedSet>> import_published_sets(const std::string& folder);

}  // namespace hdt::plan
