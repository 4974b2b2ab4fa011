// json_report.cc: results to JSON.
#include "bench/commbench/json_report.h"

#include <nlohmann/json.hpp>

namespace hdt::bench {
namespace {

using Json = nlohmann::ordered_json;

Json placement_json(const Measurement& measurement) {
  const Timing& timing = measurement.timing;
  return {
      {"time_us", timing.mean_us},   {"p50_us", timing.p50_us},
      {"p99_us", timing.p99_us},     {"algorithm_gbps", timing.algorithm_gbps},
      {"bus_gbps", timing.bus_gbps}, {"wrong", measurement.wrong ? Json(*measurement.wrong) : Json(nullptr)}};
}

Json row_json(const RowResult& result) {
  const Row& row = result.row;
  return {{"collective", name_of(row.what)},
          {"bytes", result.shape.bytes},
          {"count", result.shape.count},
          {"type", name_of(row.type)},
          {"op", reduces(row.what) ? Json(name_of(row.op)) : Json(nullptr)},
          {"root", rooted(row.what) ? Json(row.root) : Json(nullptr)},
          {"out_of_place", placement_json(result.out_of_place)},
          {"in_place", result.in_place ? placement_json(*result.in_place) : Json(nullptr)}};
}

}  // namespace

std::string json_report(const Options& options, const std::vector<RankInformation>& ranks,
                        const std::vector<RowResult>& rows, const Totals& totals) {
  Json report = {{"program", "hdt-commbench"}, {"format", 1}};
  report["ranks"] = Json::array();
  for (const RankInformation& rank : ranks) {
    report["ranks"].push_back({{"node", rank.node}, {"pid", rank.pid}, {"host", rank.host}});
  }
  report["iterations"] = options.iterations;
  report["warm_up"] = options.warm_up;
  report["memory"] = options.hdt_memory ? "hdt" : "host";
  report["rows"] = Json::array();
  for (const RowResult& row : rows) report["rows"].push_back(row_json(row));
  report["wrong"] = totals.checked ? Json(totals.wrong) : Json(nullptr);
  report["average_bus_gbps"] = totals.average_bus_gbps();
  return report.dump(2) + "\n";
}

}  // namespace hdt::bench
