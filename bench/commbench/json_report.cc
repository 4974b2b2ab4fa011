// json_report.cc: the results as JSON, for programs such as bench/compare. A change of meaning needs
// another "format".
#include "bench/commbench/json_report.h"

#include <nlohmann/json.hpp>

namespace hdt::bench {
namespace {

using Json = nlohmann::ordered_json;

// The figures of one placement, out of place or in place.
Json placement_json(const Measurement& measurement) {
  const Timing& timing = measurement.timing;
  return {{"time_us", timing.mean_us},
          {"p50_us", timing.p50_us},
          {"p99_us", timing.p99_us},
          {"algorithm_gbps", timing.algorithm_gbps},
          {"bus_gbps", timing.bus_gbps},
          {"wrong", measurement.wrong ? Json(*measurement.wrong) : Json(nullptr)},
          {"round_p50_us", measurement.round_p50_us},
          {"ratio", measurement.ratio ? Json(*measurement.ratio) : Json(nullptr)},
          {"cpu_s_per_gb", measurement.cpu_s_per_gb},
          {"sent_bytes", measurement.sent_bytes}};
}

// One row. A row that was not measured has its description and "lacks".
Json row_json(const RowResult& result, EngineKind engine) {
  const bool measured = result.lacks.empty();
  const Row& row = result.row;
  return {{"engine", name_of(engine)},
          {"collective", name_of(row.what)},
          {"bytes", result.shape.bytes},
          {"count", result.shape.count},
          {"type", name_of(row.type)},
          {"op", reduces(row.what) ? Json(name_of(row.op)) : Json(nullptr)},
          {"root", rooted(row.what) ? Json(row.root) : Json(nullptr)},
          {"lacks", measured ? Json(nullptr) : Json(result.lacks)},
          {"out_of_place", measured ? placement_json(result.out_of_place) : Json(nullptr)},
          {"in_place", result.in_place ? placement_json(*result.in_place) : Json(nullptr)}};
}

}  // namespace

std::string json_report(const Options& options, const std::vector<RankInformation>& ranks,
                        const std::vector<Engine>& engines, const std::vector<RowResult>& rows,
                        const Totals& totals) {
  Json report = {{"program", "hdt-commbench"}, {"format", 2}};
  report["ranks"] = Json::array();
  for (const RankInformation& rank : ranks) {
    report["ranks"].push_back({{"node", rank.node}, {"pid", rank.pid}, {"host", rank.host}});
  }
  // An array that is empty would otherwise be null.
  report["engines"] = Json::array();
  for (const Engine& engine : engines) {
    report["engines"].push_back({{"name", name_of(engine.kind)}, {"version", engine.version}});
  }
  report["iterations"] = options.iterations;
  report["warm_up"] = options.warm_up;
  report["rounds"] = options.rounds;
  report["memory"] = options.hdt_memory ? "hdt" : "host";
  report["rows"] = Json::array();
  for (const RowResult& row : rows) report["rows"].push_back(row_json(row, engines[row.engine].kind));
  report["wrong"] = totals.checked ? Json(totals.wrong) : Json(nullptr);
  report["average_bus_gbps"] = totals.average_bus_gbps();
  return report.dump(2) + "\n";
}

}  // namespace hdt::bench
