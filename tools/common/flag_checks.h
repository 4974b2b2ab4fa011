// flag_checks.h: what the command lines of the tools have in common: which values they refuse, and in which
// words.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace hdt::tools {

// A flag that is given again replaces what was given before, as argparse has it: command lines are put
// together from a script and what is appended to it. For flags, groups and subcommands that are added later.
// A flag that takes a list needs trigger_on_parse() beside it, or its values add up.
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

// A whole number from `least` to `most`, in decimals. CLI11 takes 010 for 8, and calls 1e6 out of range.
inline CLI::Validator whole(int64_t least, int64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    int64_t value = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    const bool octal = text.size() > 1 && text.starts_with('0');
    if (error == std::errc() && rest == end && !octal && value >= least && value <= most) return "";
    return fmt::format("'{}' given; expected a whole number from {} to {}", text, least, most);
  };
  return {check, fmt::format("INT in [{} - {}]", least, most)};
}

// CLI11 takes -1 for the greatest unsigned number.
inline CLI::Validator not_below_zero() {
  return {[](std::string& text) {
            return text.starts_with('-')
                       ? fmt::format("'{}' given; expected a whole number of at least 0", text)
                       : std::string();
          },
          ""};
}

// The name of a file or folder. An empty one is a variable of a script that was not set, and not the wish for
// no file.
inline CLI::Validator path_name() {
  return {[](std::string& text) {
            return text.empty() ? std::string("'' given; expected a name") : std::string();
          },
          ""};
}

}  // namespace hdt::tools
