// kernels_fixture.h: runs each test once per SIMD target that was compiled in and that this CPU has.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#define HWY_WANT_AVX3_DL  // as kernels.cc
#include "hwy/highway.h"

namespace hdt::collectives::testing {

class KernelsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { use(GetParam()); }
  void TearDown() override { use(0); }

 private:
  static void use(int64_t targets) {  // 0: what the CPU has
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

// kernels.cc is compiled for more than the scalar target at least (collectives/CMakeLists.txt).
inline std::vector<int64_t> kernel_targets() {
  std::vector<int64_t> targets = hwy::SupportedAndGeneratedTargets();
  std::erase(targets, HWY_SCALAR);
  return targets;
}

// clang-format off
#define HDT_INSTANTIATE_FOR_TARGETS(Suite)                                                         \
  INSTANTIATE_TEST_SUITE_P(Targets, Suite,                                                         \
      ::testing::ValuesIn(kernel_targets()),                                                       \
      [](const auto& param) { return std::string(hwy::TargetName(param.param)); })
// clang-format on

}  // namespace hdt::collectives::testing
