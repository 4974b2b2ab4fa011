// hdt-train: trains a language model over HDT, split unequally where devices are unequal. The program is one
// rank.
#include "tools/hdt-train/train_command.h"

int main(int argc, char** argv) { return hdt::tools::run_train_command(argc, argv); }
