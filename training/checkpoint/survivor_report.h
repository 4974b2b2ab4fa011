// survivor_report.h: what a rank of a run says after a loss, in a file below --save (hdt-train --elastic):
// that it lives, and whom it takes for lost.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace hdt::training {

// A longer file is none: the numbers of all ranks of the largest world have room.
inline constexpr size_t kMostReportBytes = size_t{1} << 20;

struct SurvivorReport {
  int64_t round = 0;     // 0: it has seen no failure; each attempt to make a group is one more
  int64_t beat = 0;      // rises as long as the rank lives
  std::set<int> lost;    // in the numbers of the world that the run has begun with
  bool settled = false;  // it has made a group of those that were left

  bool operator==(const SurvivorReport&) const = default;
};

// A line, with a checksum, as the file may be read while it is written.
std::string to_text(const SurvivorReport& report);
// Nothing, unless it is exactly the text of a report of a world with so many ranks.
std::optional<SurvivorReport> parse_survivor_report(std::string_view text, int world_size);

}  // namespace hdt::training
