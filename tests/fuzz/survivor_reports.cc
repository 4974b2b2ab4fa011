// survivor_reports.cc: what ranks write below --save after a loss, so that the others find them
// (training/checkpoint/survivor_report.h). The first byte says whether the checksum is made right, which no
// fuzzer guesses; the second one is the number of ranks.
#include <fmt/format.h>

#include "base/crc32c.h"
#include "tests/fuzz/target.h"
#include "training/checkpoint/survivor_report.h"

namespace hdt::fuzz_survivor_reports {

using fuzz::Bytes;
using fuzz::Choices;
using training::SurvivorReport;

constexpr uint8_t kAsItIs = 0, kWithChecksum = 1;

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  const bool has_checksum = choices.get<uint8_t>() % 2 == kAsItIs;
  const int ranks = choices.get<uint8_t>();
  std::string text = fuzz::to_text(choices.rest());
  if (!has_checksum) text = fmt::format("{:08x} {}\n", crc32c(text), text);
  const auto report = training::parse_survivor_report(text, ranks);
  if (!report) return false;
  HDT_HOLDS(report->round >= 0 && report->beat >= 0);
  HDT_HOLDS(report->lost.empty() || (*report->lost.begin() >= 0 && *report->lost.rbegin() < ranks));
  HDT_HOLDS(to_text(*report) == text);
  return true;
}

Bytes seed(uint8_t kind, uint8_t ranks, const std::string& text) {
  Bytes bytes = fuzz::to_bytes(text);
  bytes.insert(bytes.begin(), {std::byte{kind}, std::byte{ranks}});
  return bytes;
}

std::vector<Bytes> seeds() {
  std::vector<Bytes> all;
  for (const SurvivorReport& report : {SurvivorReport(), SurvivorReport{1, 17, {0, 3}, false},
                                       SurvivorReport{1 << 20, int64_t{1} << 62, {0, 1, 2, 253}, true}}) {
    const std::string text = to_text(report);
    all.push_back(seed(kAsItIs, 254, text));
    const size_t json = text.find('{');
    all.push_back(seed(kWithChecksum, 254, text.substr(json, text.size() - json - 1)));
  }
  return all;
}

std::vector<Bytes> spoilt() {
  std::vector<Bytes> all;
  const std::string text = to_text(SurvivorReport{1, 17, {0, 3}, false});
  all.push_back(seed(kAsItIs, 3, text));  // no rank 3
  all.push_back(seed(kAsItIs, 0, text));
  all.push_back(seed(kAsItIs, 4, text.substr(1)));
  all.push_back(seed(kAsItIs, 4, text.substr(0, text.size() - 1)));
  all.push_back(seed(kAsItIs, 4, "0" + text));
  all.push_back(seed(kAsItIs, 4, "\n"));
  for (const char* json :
       {"", "[]", "{", R"({"beat":1,"lost":[],"settled":true})", R"({"beat":1,"lost":[],"round":1})",
        R"({"beat":1,"lost":[],"round":1,"settled":null})", R"({"beat":1,"lost":1,"round":1,"settled":true})",
        R"({"beat":-1,"lost":[],"round":1,"settled":true})",
        R"({"beat":1,"lost":[],"round":18446744073709551615,"settled":true})",
        R"({"beat":1,"lost":["0"],"round":1,"settled":true})",
        R"({"beat":1,"lost":[-1],"round":1,"settled":true})",
        R"({"beat":1,"lost":[3,0],"round":1,"settled":true})",
        R"({"beat":1,"lost":[],"round":1,"settled":true,"x":1})"})
    all.push_back(seed(kWithChecksum, 4, json));
  return all;
}

HDT_FUZZ_TARGET(survivor_reports, take, seeds, spoilt)

}  // namespace hdt::fuzz_survivor_reports
