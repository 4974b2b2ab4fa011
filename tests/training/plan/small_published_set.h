// small_published_set.h: a published folder with one plan, which tests spoil or import.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <tuple>
#include <vector>

#include "tests/training/data/temporary_folder.h"
#include "training/plan/validate/published_set.h"

namespace hdt::plan {

// Two kinds, three units, one plan of two stages.
class SmallSet {
 public:
  SmallSet() {
    for (const char* device : {"A", "B"}) {
      for (const char* layer : {"0", "1", "2"}) profiles["m"][device]["2"]["1"][layer] = {.5, .75, .1};
    }
    for (const char* layer : {"0", "1", "2"})
      sizes["m"]["1"][layer] = {{"params_bytes", 100}, {"act_output_bytes", 10}, {"act_mem_bytes", 30}};
    for (const auto& [from, to, rate] :
         {std::tuple{"A", "B", 1.0}, {"B", "A", 1.0}, {"A", "A", 9.0}, {"B", "B", 9.0}})
      links["z"][from]["1"]["z"][to]["1"] = {{0.0, 0.5, rate}, 1e9};
    plan = {{"zone", "z"}, {"mbs", 2}, {"gbs", 8}, {"real", 6.0}, {"max_mem", 1000}};
    plan["pipeline_list"] = {{{"layers_per_stage", {{0, 1}, {2, 3}}},
                              {"tmp_per_stage", {{{{{"A", 1, "z"}}, 1}}, {{{{"B", 1, "z"}}, 1}}}}}};
    // A stage needs a transformer layer: four units.
    for (const char* device : {"A", "B"}) profiles["m"][device]["2"]["1"]["3"] = {.5, .75, .1};
    sizes["m"]["1"]["3"] = sizes["m"]["1"]["2"];
  }

  Result<std::vector<PublishedSet>> import() const {
    const training::TemporaryFolder folder;
    write(folder);
    return import_published_sets(folder.path());
  }
  void write(const training::TemporaryFolder& folder) const {
    training::write_all(folder.file("profiles.json"), profiles.dump());
    training::write_all(folder.file("links.json"), links.dump());
    training::write_all(folder.file("llm_info.json"), sizes.dump());
    std::filesystem::create_directory(folder.file("plans-x"));
    training::write_all(folder.file("plans-x/plan_config_N2.json"), plan.dump());
  }

  nlohmann::json profiles, links, sizes, plan;
};

}  // namespace hdt::plan
