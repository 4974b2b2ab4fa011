// libfuzzer_entry.cc: what libFuzzer calls: the one target that is linked.
#include "tests/fuzz/target.h"

namespace hdt::fuzz {

std::map<std::string, Target>& targets() {
  static std::map<std::string, Target> all;
  return all;
}

}  // namespace hdt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const hdt::fuzz::Target target = hdt::fuzz::targets().begin()->second;
  target.take(std::as_bytes(std::span(data, size)));
  return 0;
}
