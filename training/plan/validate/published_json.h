// published_json.h: turns the parts of a published set's JSON files into the planner's own terms. Broken
// content is thrown as BrokenSet, since nested JSON is read by expressions; import_published_sets()
// turns it into a Status.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "training/plan/validate/published_set.h"

namespace hdt::plan {

// what() names the file, the place in it and the reason.
class BrokenSet : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The JSON files of one folder.
struct PublishedFiles {
  // [model][device][micro-batch][tp][layer] = [forward, backward, update], in seconds.
  nlohmann::json profiles;
  // [zone][device][GPUs][zone][device][GPUs] = [[a, b, c], peak]: coefficients of a fit of the rate.
  nlohmann::json links;
  // [model][tp][layer] = {params_bytes, act_output_bytes, act_mem_bytes}.
  nlohmann::json sizes;
};

// Throws BrokenSet with the path if the file cannot be read, is too large or is no JSON.
nlohmann::json read_json(const std::string& path);

// The one model whose profile has all of `devices` and exactly `units` layers. The plans do not name it.
std::string published_model_name(const PublishedFiles& files, const std::vector<std::string>& devices,
                                 size_t units);
// The model: embedding, transformer layers, head. Sizes of the layers are averaged.
Model published_model(const PublishedFiles& files, const std::string& name, size_t units);
// The profile of the model on `devices`, with the links inside `zone`.
Profile published_profile(const PublishedFiles& files, const std::string& model, size_t units,
                          const std::vector<std::string>& devices, const std::string& zone);

}  // namespace hdt::plan
