// survivor_report.cc: eight hexadecimal digits of a CRC, a space, JSON, and the end of the line.
#include "training/checkpoint/survivor_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/crc32c.h"
#include "base/foreign_json.h"

namespace hdt::training {
namespace {

constexpr size_t kChecksumDigits = 8;

// A number that can be counted up.
std::optional<int64_t> counter_in(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto value = found->get<uint64_t>();
  if (value > uint64_t{1} << 62) return std::nullopt;
  return static_cast<int64_t>(value);
}

}  // namespace

std::string to_text(const SurvivorReport& report) {
  const std::string json = nlohmann::json{
      {"round", report.round},
      {"beat", report.beat},
      {"lost", report.lost},
      {"settled",
       report.settled}}.dump();
  return fmt::format("{:08x} {}\n", crc32c(json), json);
}

std::optional<SurvivorReport> parse_survivor_report(std::string_view text, int world_size) {
  if (text.size() > kMostReportBytes || text.size() < kChecksumDigits + 2 || text.back() != '\n')
    return std::nullopt;
  const std::string_view json = text.substr(kChecksumDigits + 1, text.size() - kChecksumDigits - 2);
  if (text.substr(0, kChecksumDigits + 1) != fmt::format("{:08x} ", crc32c(json))) return std::nullopt;
  const Result<nlohmann::json> parsed = parse_foreign_json(json, kMostReportBytes);
  if (!parsed.is_ok() || !parsed.value().is_object()) return std::nullopt;
  const nlohmann::json& object = parsed.value();
  const auto round = counter_in(object, "round");
  const auto beat = counter_in(object, "beat");
  const auto lost = object.find("lost");
  const auto settled = object.find("settled");
  if (!round || !beat || lost == object.end() || !lost->is_array() || settled == object.end() ||
      !settled->is_boolean())
    return std::nullopt;
  SurvivorReport report{*round, *beat, {}, settled->get<bool>()};
  for (const nlohmann::json& rank : *lost) {
    if (!rank.is_number_unsigned()) return std::nullopt;
    const auto number = rank.get<uint64_t>();
    if (number >= static_cast<uint64_t>(std::max(world_size, 0))) return std::nullopt;
    report.lost.insert(static_cast<int>(number));
  }
  // Another writer's text, with keys more or twice, is no report, whatever its checksum.
  if (to_text(report) != text) return std::nullopt;
  return report;
}

}  // namespace hdt::training
