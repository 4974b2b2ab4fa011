// table.cc: formats the text table. Columns have fixed widths, so that tables of several runs can be
// compared line by line.
#include "bench/commbench/table.h"

#include <fmt/format.h>

#include "bench/commbench/sizes.h"

namespace hdt::bench {
namespace {

// Microseconds as nccl-tests prints them: the longer, the fewer decimals.
std::string time_text(double us) {
  if (us >= 10000) return fmt::format("{:>8.0f}", us);
  return us >= 100 ? fmt::format("{:>8.1f}", us) : fmt::format("{:>8.2f}", us);
}

// Time, bandwidths and wrong values of one placement.
std::string placement_text(const std::optional<Measurement>& measurement) {
  if (!measurement) return fmt::format("  {:>8} {:>7} {:>7} {:>6}", "N/A", "N/A", "N/A", "N/A");
  return fmt::format("  {} {:>7.2f} {:>7.2f} {:>6}", time_text(measurement->timing.mean_us),
                     measurement->timing.algorithm_gbps, measurement->timing.bus_gbps,
                     measurement->wrong ? std::to_string(*measurement->wrong) : "N/A");
}

std::string percentiles_text(const std::optional<Measurement>& measurement) {
  if (!measurement) return fmt::format("  {:>8} {:>8}", "N/A", "N/A");
  return fmt::format("  {} {}", time_text(measurement->timing.p50_us), time_text(measurement->timing.p99_us));
}

// "N/A" with one engine, or if the reference lacks the call.
std::string ratio_text(const std::optional<Measurement>& measurement) {
  if (!measurement || !measurement->ratio) return fmt::format(" {:>7}", "N/A");
  return fmt::format(" {:>7.3f}", *measurement->ratio);
}

// "N/A" for a barrier, which has no bus traffic.
std::string cpu_text(const std::optional<Measurement>& measurement) {
  if (!measurement || measurement->cpu_s_per_gb == 0) return fmt::format(" {:>7}", "N/A");
  return fmt::format(" {:>7.3f}", measurement->cpu_s_per_gb);
}

// The columns of a row that was not measured.
std::string missing_text() {
  std::string text;
  for (int placement = 0; placement < 2; ++placement) {
    text += fmt::format("  {:>8} {:>7} {:>7} {:>6}", "-", "-", "-", "-");
  }
  return text + fmt::format("  {:>8} {:>8}  {:>8} {:>8}", "-", "-", "-", "-");
}

}  // namespace

std::string header_text(const Options& options, const std::vector<RankInformation>& ranks,
                        const std::vector<Engine>& engines) {
  // The header repeats the flags, so that a table says how it was made.
  const std::string step = options.factor > 1 ? fmt::format("{}(factor)", options.factor)
                                              : fmt::format("{}(bytes)", size_text(options.step_bytes));
  std::string text = fmt::format(
      "# hdt-commbench minBytes {} maxBytes {} step: {} warmup iters: {} iters: {} rounds: {} validate: {} "
      "memory: "
      "{}\n#\n"
      "# Using ranks\n",
      size_text(options.min_bytes), size_text(options.max_bytes), step, options.warm_up, options.iterations,
      options.rounds, options.check ? 1 : 0, options.hdt_memory ? "hdt" : "host");
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    text += fmt::format("#  Rank {:>3} Node {:>3} Pid {:>6} on {}\n", rank, ranks[rank].node, ranks[rank].pid,
                        ranks[rank].host);
  }
  text += "# Using engines\n";
  for (const Engine& engine : engines)
    text += fmt::format("#  {:<5} {}\n", name_of(engine.kind), engine.version);
  return text;
}

std::string columns_text(Collective what) {
  return fmt::format("#\n# {}\n", name_of(what)) +
         fmt::format(
             "# {:>10} {:>12} {:>8} {:>6} {:>6}  {:^31}  {:^31}  {:^17}  {:^17}  {:^6}  {:^15}  {:^15}\n", "",
             "", "", "", "", "out-of-place", "in-place", "out-of-place", "in-place", "", "ratio", "cpu") +
         fmt::format(
             "# {:>10} {:>12} {:>8} {:>6} {:>6}  {:>8} {:>7} {:>7} {:>6}  {:>8} {:>7} {:>7} {:>6}"
             "  {:>8} {:>8}  {:>8} {:>8}  {:>6}  {:>7} {:>7}  {:>7} {:>7}\n",
             "size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong", "time", "algbw",
             "busbw", "#wrong", "p50", "p99", "p50", "p99", "engine", "out", "in", "out", "in") +
         fmt::format(
             "# {:>10} {:>12} {:>8} {:>6} {:>6}  {:>8} {:>7} {:>7} {:>6}  {:>8} {:>7} {:>7} {:>6}"
             "  {:>8} {:>8}  {:>8} {:>8}  {:>6}  {:>7} {:>7}  {:>7} {:>7}\n",
             "(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "", "(us)", "(GB/s)", "(GB/s)", "",
             "(us)", "(us)", "(us)", "(us)", "", "", "", "(s/GB)", "(s/GB)");
}

std::string row_text(const RowResult& result, EngineKind engine) {
  const Row& row = result.row;
  const bool data = moves_data(row.what);
  const std::string what =
      fmt::format("  {:>10} {:>12} {:>8} {:>6} {:>6}", result.shape.bytes, result.shape.count,
                  data ? name_of(row.type) : "none", reduces(row.what) ? name_of(row.op) : "none",
                  // nccl-tests prints -1 where there is no root.
                  rooted(row.what) ? row.root : -1);
  if (!result.lacks.empty()) {
    return what + missing_text() +
           fmt::format("  {:>6}  {:>7} {:>7}  {:>7} {:>7}\n", name_of(engine), "-", "-", "-", "-");
  }
  return what + placement_text(result.out_of_place) + placement_text(result.in_place) +
         percentiles_text(result.out_of_place) + percentiles_text(result.in_place) +
         fmt::format("  {:>6} ", name_of(engine)) + ratio_text(result.out_of_place) +
         ratio_text(result.in_place) + " " + cpu_text(result.out_of_place) + cpu_text(result.in_place) + "\n";
}

std::string wrong_peer_text(const RowResult& result, EngineKind engine) {
  return fmt::format("#  {}: {} wrong values above: these times are of a wrong result\n", name_of(engine),
                     result.wrong());
}

std::string sent_text(const RowResult& result, EngineKind engine) {
  std::string text;
  for (const auto& [name, bytes] : result.out_of_place.sent_bytes) text += fmt::format(" {} {}", name, bytes);
  if (text.empty()) return text;
  return fmt::format("#  {} of {} bytes, {}, an iteration, bytes sent by interface:{}\n",
                     name_of(result.row.what), result.shape.bytes, name_of(engine), text);
}

void Totals::add(const RowResult& result, bool result_made, bool averaged) {
  for (const Measurement* measurement :
       {&result.out_of_place, result.in_place ? &*result.in_place : nullptr}) {
    // Barriers have no bandwidth and no result.
    if (measurement == nullptr || !result.lacks.empty() || !moves_data(result.row.what)) continue;
    bus_gbps_sum += averaged ? measurement->timing.bus_gbps : 0;
    measurements += averaged ? 1 : 0;
    if (!result_made) continue;
    wrong += measurement->wrong.value_or(0);
    checked = checked && measurement->wrong.has_value();
  }
}

std::string footer_text(const Totals& totals) {
  const std::string bounds = totals.checked
                                 ? fmt::format("{} {}", totals.wrong, totals.wrong == 0 ? "OK" : "FAILED")
                                 : "N/A (not checked)";
  return fmt::format("# Out of bounds values : {}\n# Avg bus bandwidth    : {:g}\n#\n", bounds,
                     totals.average_bus_gbps());
}

}  // namespace hdt::bench
