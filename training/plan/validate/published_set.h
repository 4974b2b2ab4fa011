// published_set.h: published measurements of training steps, with the profile they were predicted from: what
// the predictor is held against. docs/predictor.md describes the folder's format.
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

struct Measurement {
  std::string name;
  Plan plan;
  double step_seconds = 0;
  int64_t peak_memory_bytes = 0;  // 0: not measured
  std::string left_out;           // why it does not count; empty: it does
};

struct PublishedSet {
  std::string name;
  Model model;
  Profile profile;
  Cluster cluster;
  std::vector<Measurement> rows;
};

// One set for each folder plans-* of `folder`, in the order of their names. Refuses (kConfig) files that are
// missing or broken, with file, field and reason.
Result<std::vector<PublishedSet>> import_published_sets(const std::string& folder);

}  // namespace hdt::plan
