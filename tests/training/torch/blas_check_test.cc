// blas_check_test.cc: a reference BLAS is noticed, and nothing else.
#include "training/torch/blas_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hdt::training {
namespace {

TEST(BlasCheckTest, TellsTheReferenceFromTheRest) {
  EXPECT_TRUE(is_reference_blas("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0"));
  EXPECT_FALSE(is_reference_blas("/usr/lib/x86_64-linux-gnu/openblas-openmp/libblas.so.3"));
  EXPECT_FALSE(is_reference_blas("/usr/lib/x86_64-linux-gnu/openblas-openmp/libopenblas-r0.3.21.so"));
  EXPECT_FALSE(is_reference_blas("/opt/intel/mkl/libmkl_rt.so.2"));
  EXPECT_FALSE(is_reference_blas(""));
}

TEST(BlasCheckTest, WarningSaysHowToFixIt) {
  EXPECT_THAT(blas_warning("/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0"),
              ::testing::HasSubstr("apt install libopenblas0-openmp"));
  EXPECT_EQ(blas_warning("/usr/lib/x86_64-linux-gnu/openblas-openmp/libblas.so.3"), "");
}

TEST(BlasCheckTest, FindsTheLibraryOfThisProcess) {
  EXPECT_THAT(blas_library(), ::testing::HasSubstr("blas"));
}

}  // namespace
}  // namespace hdt::training
