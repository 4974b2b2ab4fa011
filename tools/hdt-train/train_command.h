// train_command.h: all that hdt-train does, as a function, so that tests can run it without loading libtorch
// anew. Main thread, once a process.
#pragma once

namespace hdt::tools {

// One rank of the job that the command line and the launcher's variables describe. Returns its exit code.
int run_train_command(int argc, char** argv);

}  // namespace hdt::tools
