// measure_in_turn.cc: rounds over engines. Whatever else happens on the machine for longer than a turn
// then affects all engines alike.
#include <algorithm>

#include "base/median.h"
#include "bench/commbench/measure.h"

namespace hdt::bench {
namespace {

// The median over the rounds of (time / the reference's time in the same round). Ratios within a round
// are not affected by what slows down whole rounds.
double ratio_of(const std::vector<double>& rounds, const std::vector<double>& reference) {
  std::vector<double> ratios;
  for (size_t round = 0; round < std::min(rounds.size(), reference.size()); ++round) {
    ratios.push_back(reference[round] > 0 ? rounds[round] / reference[round] : 1);
  }
  return median(std::move(ratios));
}

// Needs two engines, and a reference that was measured.
void set_ratios(std::vector<RowResult>& results, size_t reference) {
  if (results.size() < 2 || !results[reference].lacks.empty()) return;
  for (RowResult& result : results) {
    if (!result.lacks.empty()) continue;
    result.out_of_place.ratio =
        ratio_of(result.out_of_place.round_p50_us, results[reference].out_of_place.round_p50_us);
    if (result.in_place) {
      result.in_place->ratio =
          ratio_of(result.in_place->round_p50_us, results[reference].in_place->round_p50_us);
    }
  }
}

}  // namespace

Result<std::vector<RowResult>> measure_in_turn(std::vector<Measurer>& measurers, size_t reference, int rounds,
                                               const Row& row, Pattern& pattern) {
  std::vector<RowResult> results;
  // An engine lacks the same calls on all ranks, so all of them leave out the same engines.
  for (size_t engine = 0; engine < measurers.size(); ++engine) {
    RowResult result{row, shape_of(row, measurers[engine].ranks()), {}, std::nullopt, engine, ""};
    result.lacks = measurers[engine].lacks(row);
    results.push_back(std::move(result));
  }
  // Out of place first, in all rounds; then in place.
  for (Placement placement : {Placement::kOutOfPlace, Placement::kInPlace}) {
    if (placement == Placement::kInPlace && !has_in_place(row.what)) continue;
    std::vector<Measurer::Series> series(measurers.size());
    for (int round = 0; round < rounds; ++round) {
      for (size_t engine = 0; engine < measurers.size(); ++engine) {
        if (!results[engine].lacks.empty()) continue;
        HDT_RETURN_IF_ERROR(measurers[engine].run_round(row, placement, pattern, series[engine]));
      }
    }
    for (size_t engine = 0; engine < measurers.size(); ++engine) {
      if (!results[engine].lacks.empty()) continue;
      // After all rounds, so that verifying does not come between two turns.
      Result<Measurement> concluded = measurers[engine].conclude(row, placement, pattern, series[engine]);
      if (!concluded.is_ok()) return concluded.status();
      if (placement == Placement::kOutOfPlace) {
        results[engine].out_of_place = concluded.take();
      } else {
        results[engine].in_place = concluded.take();
      }
    }
  }
  set_ratios(results, reference);
  return results;
}

}  // namespace hdt::bench
