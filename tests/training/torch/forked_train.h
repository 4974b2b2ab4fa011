// forked_train.h: hdt-train as copies of the test's own process, which has loaded libtorch already. Loading
// it takes half a second of a processor or more in each process that is started anew.
#pragma once

#include <string>

#include "tests/training/torch/program.h"

namespace hdt::training::testing {

// The ranks of a job of hdt-train with these flags, which are words as a shell takes them. The output is that
// of all ranks, and the exit status the first that is not 0; 124 when the time limit is over. The caller has
// one thread, and has not run torch.
ProgramResult run_forked_train(const std::string& flags, int seconds, int ranks = 1);

}  // namespace hdt::training::testing
