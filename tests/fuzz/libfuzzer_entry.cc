// libfuzzer_entry.cc: fuzz_targets: every target as one libFuzzer program. `--target=NAME` says which;
// libFuzzer leaves what begins with two dashes alone.
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/fuzz/target.h"

namespace hdt::fuzz {

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

namespace {

Target chosen;

}  // namespace
}  // namespace hdt::fuzz

extern "C" int LLVMFuzzerInitialize(int* count, char*** values);
extern "C" int LLVMFuzzerInitialize(int* count, char*** values) {
  constexpr std::string_view kFlag = "--target=";
  for (int i = 1; i < *count; ++i) {
    const std::string_view word = (*values)[i];
    if (!word.starts_with(kFlag)) continue;
    const auto found = hdt::fuzz::targets().find(std::string(word.substr(kFlag.size())));
    if (found != hdt::fuzz::targets().end()) hdt::fuzz::chosen = found->second;
  }
  if (hdt::fuzz::chosen.take == nullptr) {
    std::fprintf(stderr, "fuzz_targets: expected --target=NAME, one of fuzz_replay --list\n");
    std::exit(2);
  }
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  hdt::fuzz::chosen.take(std::as_bytes(std::span(data, size)));
  return 0;
}
