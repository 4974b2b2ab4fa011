// profile_command.cc: `hdt-plan profile`. hdt-plan knows no tensor library, so hdt-train, which runs the
// model, does the measuring.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "tools/hdt-plan/commands.h"

namespace hdt::tools {

namespace {

// hdt-train stands beside this program, unless that was built without torch.
Result<std::string> find_trainer() {
  std::error_code error;
  const auto folder = std::filesystem::canonical("/proc/self/exe", error).parent_path();
  const auto trainer = folder / "hdt-train";
  if (::access(trainer.c_str(), X_OK) == 0) return trainer.string();
  return Status(
      Code::kConfig,
      fmt::format("profile: no hdt-train in {}; it measures the model and is built where libtorch is found "
                  "(profiles can also be written by hand: docs/predictor.md)",
                  folder.string()));
}

}  // namespace

Status profile_command(const ProfileCommandOptions& options) {
  const auto trainer = find_trainer();
  if (!trainer.is_ok()) return trainer.status();
  std::vector<std::string> words;
  if (options.ranks > 1) {
    words = {"mpirun", "--bind-to", "none", "--oversubscribe"};
    // Open MPI refuses to run as root unless it is asked to. In containers, root is usual.
    if (::geteuid() == 0) words.emplace_back("--allow-run-as-root");
    words.insert(words.end(), {"-np", std::to_string(options.ranks)});
  }
  words.push_back(trainer.value());
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  // Last, since the last one of equal flags counts.
  words.insert(words.end(), {"--profile", options.folder});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // On success this process is hdt-train, and does not come back.
  ::execvp(arguments.front(), arguments.data());
  return {
      Code::kConfig,
      fmt::format("profile: cannot start {}: {}{}", words.front(), std::strerror(errno),
                  options.ranks > 1 ? "; with --ranks 1 it is not needed, and links are not measured" : "")};
}

}  // namespace hdt::tools
