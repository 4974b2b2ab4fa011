// checkpoint_flags.cc: describes the flags of checkpoints.
#include "tools/hdt-train/checkpoint_flags.h"

#include "tools/common/flag_checks.h"

namespace hdt::tools {

void add_checkpoints(CLI::App& app, TrainFlags& flags) {
  app.add_option("--save", flags.save,
                 "write checkpoints there, each in a folder of its own; all nodes must share DIR. With it, "
                 "SIGTERM saves and ends the run at the next step")
      ->type_name("DIR")
      ->check(path_name());
  app.add_option("--save-interval", flags.save_interval,
                 "steps between checkpoints; 0: only at the end, and after SIGTERM")
      ->check(whole(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--keep-checkpoints", flags.keep_checkpoints, "the newest ones that stay; 0: all")
      ->check(whole(0, 1'000'000))
      ->capture_default_str();
  app.add_option(
         "--load", flags.load,
         "go on from the newest checkpoint there, on any layout; starts anew, with a warning, if there "
         "is none")
      ->type_name("DIR")
      ->check(path_name());
  app.add_flag("--exit-on-missing-checkpoint", flags.exit_on_missing_checkpoint,
               "end with an error instead of starting anew");
  app.add_flag(
      "--elastic", flags.elastic,
      "when ranks are lost, the others do not end: they share out layers and samples anew among "
      "themselves, by the speed that was measured, and go on from the last checkpoint, with the same "
      "global batch. Needs --save and --save-interval; the launcher must let the others live");
}

}  // namespace hdt::tools
