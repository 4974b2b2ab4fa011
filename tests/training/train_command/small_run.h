// small_run.h: hdt-train on a model of no size, as a user starts it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "tests/training/torch/forked_train.h"
#include "tests/training/torch/program.h"

namespace hdt::training::testing {

constexpr int kTimeLimit = 120;  // seconds: many times what such a run takes
inline const std::string kText = std::string(" --text ") + HDT_SOURCE_DIR + "/LICENSE";
inline const std::string kSmall =
    " --num-layers 2 --hidden-size 16 --num-attention-heads 2 --ffn-hidden-size 16 --seq-length 8 "
    "--train-iters 5";

inline std::string ranks(int count) {
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  return "mpirun --oversubscribe --bind-to none -np " + std::to_string(count) + " ";
}

// hdt-train alone speaks, and not libhdt of a machine without NICs.
inline void quiet() {
  setenv("OMP_NUM_THREADS", "1", 1);
  setenv("HDT_LOG_LEVEL", "error", 1);
}

inline ProgramResult train(const std::string& flags, int count = 1) {
  quiet();
  return run_forked_train(kSmall + flags, kTimeLimit, count);
}

// For what the program finds beside itself.
inline ProgramResult train_as_program(const std::string& flags) {
  quiet();
  return run_program(HDT_TRAIN + kSmall + flags, kTimeLimit);
}

// One line, and nothing else.
inline void expect_refused(const ProgramResult& run, int exit_status, const std::string& text) {
  EXPECT_EQ(run.exit_status, exit_status) << run.output;
  EXPECT_THAT(run.output, ::testing::AllOf(::testing::StartsWith("hdt-train: "), ::testing::HasSubstr(text)));
  EXPECT_EQ(std::count(run.output.begin(), run.output.end(), '\n'), 1) << run.output;
}

}  // namespace hdt::training::testing
