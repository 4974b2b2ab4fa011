// published_json.h: the parts of a published set's JSON files, each turned into the planner's own terms.
// Broken content is thrown as BrokenSet and becomes a Status in import_published_sets.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "training/plan/validate/published_set.h"

namespace hdt::plan {

class BrokenSet : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// What the JSON files of one folder say.
struct PublishedFiles {
  nlohmann::json profiles;  // [model][device][micro-batch][tp][layer] = [forward, backward, update] seconds
  nlohmann::json links;     // [zone][device][GPUs][zone][device][GPUs] = [[a, b, c], peak]
  nlohmann::json sizes;     // [model][tp][layer] = {params_bytes, act_output_bytes, act_mem_bytes}
};

// Throws BrokenSet with the path when it cannot be read.
nlohmann::json read_json(const std::string& path);

// The one model whose profile has all `devices` and exactly `units` layers.
std::string published_model_name(const PublishedFiles& files, const std::vector<std::string>& devices,
                                 size_t units);
Model published_model(const PublishedFiles& files, const std::string& name, size_t units);
Profile published_profile(const PublishedFiles& files, const std::string& model, size_t units,
                          const std::vector<std::string>& devices, const std::string& zone);

}  // namespace hdt::plan
