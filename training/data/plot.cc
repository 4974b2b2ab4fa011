// plot.cc: the script is written first, because it is all that a user has where gnuplot is missing.
#include "training/data/plot.h"

#include <fmt/format.h>

#include "base/atomic_file.h"
#include "training/data/command.h"

namespace hdt::training {

// "noenhanced" lets gnuplot show _ and ^ as they are.
std::string plot_head(int width, int height, std::string_view title) {
  return fmt::format(
      "set encoding utf8\n"
      "set terminal svg noenhanced size {}, {} font 'sans-serif,13' background '#ffffff'\n"
      "set title {}\n",
      width, height, plot_string(title));
}

// Between single quotes gnuplot knows one special character, the quote, which is doubled.
std::string plot_string(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    quoted += byte < 0x20 || byte == 0x7f ? ' ' : c;
    if (c == '\'') quoted += c;
  }
  return quoted + "'";
}

Result<std::string> write_plot(const std::string& path, const std::string& script) {
  const std::string script_path = path + ".gnuplot";
  HDT_RETURN_IF_ERROR(write_file_atomically(script_path, script));
  if (const auto version = run_command({"gnuplot", "--version"}); !version.is_ok()) {
    return fmt::format("{} is not drawn: {}; install gnuplot (Debian: gnuplot-nox), then: gnuplot {} > {}",
                       path, version.status().message(), script_path, path);
  }
  // Without the user's own settings, which could change the terminal.
  const auto drawn = run_command({"gnuplot", "--default-settings", script_path});
  if (!drawn.is_ok()) return drawn.status();
  if (drawn.value().exit_code != 0) {
    return Status(Code::kSystem, fmt::format("gnuplot ended with exit code {} on {}: {}",
                                             drawn.value().exit_code, script_path, drawn.value().err));
  }
  HDT_RETURN_IF_ERROR(write_file_atomically(path, drawn.value().out));
  return std::string();
}

}  // namespace hdt::training
