// hdt-plan: predicts training steps of plans on mixed clusters, searches plans, and shows how far off it is.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "tools/hdt-plan/commands.h"

namespace {

constexpr int kExitUsage = 2;

constexpr const char* kExamples =
    "Examples:\n"
    "  hdt-plan validate published/            every measured plan, measured and predicted\n"
    "  hdt-plan validate published/ --json     the same for programs\n"
    "\n"
    "Exit status: 0 done, 2 wrong usage or an input that was refused.";

int fail(std::string message) {
  std::ranges::replace(message, '\n', ' ');
  fmt::print(stderr, "hdt-plan: {}\n", message);
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app(
      "Predicts what a training step of a plan takes on a mixed cluster, and shows how far off that is.");
  app.footer(kExamples);
  app.require_subcommand(1);

  hdt::tools::ValidateOptions validate;
  CLI::App* validate_app =
      app.add_subcommand("validate", "predict published measurements, each calibrated on the others");
  validate_app->footer("Example:\n  hdt-plan validate published/\n\ndocs/predictor.md describes the folder.");
  validate_app
      ->add_option("folder", validate.folder,
                   "reads profiles.json, links.json, llm_info.json and plans-*/*.json")
      ->type_name("DIR")
      ->required();
  validate_app->add_flag("--json", validate.json, "print JSON");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return fail(std::string(error.what()) + " (see hdt-plan --help)");
  }
  const hdt::Status status = hdt::tools::validate_command(validate);
  if (!status.is_ok()) return fail(status.message());
  if (std::fflush(stdout) != 0) return fail("cannot write to stdout");
  return 0;
}
