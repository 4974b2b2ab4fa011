// toml_files.h: profiles, clusters, models and plans as TOML files (docs/predictor.md describes the
// fields). Reading checks everything that can be said about the file alone; whether files fit each other
// is for check_plan() and check_profile(). An error is kConfig and names the file, the field and the
// reason.
#pragma once

#include <string>

#include "base/status.h"
#include "training/plan/describe/cluster.h"
#include "training/plan/describe/model.h"
#include "training/plan/describe/plan.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

Result<Model> read_model(const std::string& path);
Result<Profile> read_profile(const std::string& path);
Result<Cluster> read_cluster(const std::string& path);
Result<Plan> read_plan(const std::string& path);

// The text of a file that reads back as the same value, to the last bit of each number.
std::string to_toml(const Model& model);
std::string to_toml(const Profile& profile);
std::string to_toml(const Cluster& cluster);
std::string to_toml(const Plan& plan);

}  // namespace hdt::plan
