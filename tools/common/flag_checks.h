// flag_checks.h: what the command lines of the tools have in common: which values they refuse, and in which words.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cfloat>
#include <cmath>
#include <string>

namespace hdt::tools {

// A flag that is given again replaces what was given before, as argparse has it: command lines are put together from a script and
// what is appended to it. For flags, groups and subcommands that are added later. A flag that takes a list needs
// trigger_on_parse() beside it, or its values add up.
inline void last_one_counts(CLI::App& app) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

// A finite number from `least` to `most`. CLI::Range lets nan pass, and prints great bounds in 300 digits.
inline CLI::Validator number(double least, double most) {
  const auto check = [least, most](std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= least && value <= most)
      return "";
    return fmt::format("'{}' given; expected a number from {:g} to {:g}", text, least, most);
  };
  return {check, fmt::format("FLOAT in [{:g} - {:g}]", least, most)};
}

// A number that a float can hold.
inline CLI::Validator float_number(double least) { return number(least, FLT_MAX); }

// CLI11 takes -1 for the greatest unsigned number.
inline CLI::Validator not_below_zero() {
  return {[](std::string& text) {
            return text.starts_with('-') ? fmt::format("'{}' given; expected a whole number of at least 0", text)
                                         : std::string();
          },
          ""};
}

// The name of a file or folder. An empty one is a variable of a script that was not set, and not the wish for no file.
inline CLI::Validator path_name() {
  return {[](std::string& text) {
            return text.empty() ? std::string("'' given; expected a name") : std::string();
          },
          ""};
}

}  // namespace hdt::tools
