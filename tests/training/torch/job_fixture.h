// job_fixture.h: hdt-train over libhdt on four unequal ranks, for tests in several files.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "tests/training/torch/forked_train.h"
#include "tests/training/torch/program.h"

namespace hdt::training::testing {

// Any text will do: the licence is in every checkout.
inline const std::string kText = std::string("--text ") + HDT_SOURCE_DIR + "/LICENSE";
inline const std::string kModel =
    " --num-layers 4 --hidden-size 32 --num-attention-heads 4 --ffn-hidden-size 64 --seq-length 32"
    " --lr-warmup-iters 5 " +
    kText;
// Seconds for one program: many times what it takes on an idle machine.
constexpr int kTimeLimit = 280;
inline const std::string kFiftySteps = " --train-iters 50 --lr 3e-3";
inline const std::string kProgram = HDT_TRAIN;
inline const std::string kPlanProgram = HDT_PLAN;
inline const std::string kFourRanks = "mpirun --oversubscribe --bind-to none -np 4 ";
inline const std::string kStages =
    " --use-tp-pp-dp-mapping --hetero-pipeline-stages 1 3 1 1 --hetero-pipeline-stages 2 2 2";
// The first replica has two chunks of the model on each of its stages, the second one has one.
inline const std::string kInterleaved =
    " --use-tp-pp-dp-mapping --hetero-pipeline-stages 1 1 1 1 1 1 --hetero-pipeline-stages 2 3 1"
    " --schedule interleaved --num-virtual-stages-per-pipeline-rank 2 1";

// Each test has a folder of its own.
class JobFixture : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // A test machine may run everything as root; mpirun wants that confirmed.
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
    setenv("OMP_NUM_THREADS", "1", 1);
  }

  // The command line of four ranks on one node, which host its daemon themselves.
  static std::string on_one_node(const std::string& arguments) { return kFourRanks + kProgram + arguments; }
  // Two ranks on each of two nodes, which meet over TCP.
  static std::string on_two_nodes(const std::string& arguments) {
    const auto node = [&](const std::string& number) {
      return "-np 2 -x HDT_NODE_NAME=job-" + std::to_string(getpid()) + "-" + number +
             " -x HDT_NICS_ADDRESSES=127.0.1." + number + " " + kProgram + arguments;
    };
    return "mpirun --oversubscribe --bind-to none " + node("1") + " : " + node("2");
  }

  ScratchDirectory scratch_;
};

}  // namespace hdt::training::testing
