// kernels_fixture.h: runs each test once per SIMD target that was compiled in and that this CPU has.
#pragma once

#include <gtest/gtest.h>

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

// clang-format off
#define HDT_INSTANTIATE_FOR_TARGETS(Suite)                                                         \
  INSTANTIATE_TEST_SUITE_P(Targets, Suite,                                                         \
      ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),                                    \
      [](const auto& param) { return std::string(hwy::TargetName(param.param)); })
// clang-format on

}  // namespace hdt::collectives::testing
