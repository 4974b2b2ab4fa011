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
#include "training/plan/describe/toml_fields.h"

namespace hdt::plan {

// Checked by check_model().
Result<Model> read_model(const std::string& path);
// Every number is in its range, no entry is given twice; it may have holes (check_profile()).
Result<Profile> read_profile(const std::string& path);
// Checked by check_cluster(). A table with a `count` has become so many nodes.
Result<Cluster> read_cluster(const std::string& path);
// Checked by check_replicas(). Its classes follow the daemon's rules.
Result<Plan> read_plan(const std::string& path);

// A plan that stands in a table of another file: the fields of a plan's file but its classes.
// check_replicas() is for the caller.
Plan read_plan_fields(TomlFields& fields);

// The text of a file that reads back as the same value, to the last bit of each number.
std::string to_toml(const Model& model);
std::string to_toml(const Profile& profile);
std::string to_toml(const Cluster& cluster);
std::string to_toml(const Plan& plan);

}  // namespace hdt::plan
