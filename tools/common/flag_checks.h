// flag_checks.h: what the command lines of the tools have in common: which values they refuse, and in
// which words. Validators return "" for a value that is accepted, and otherwise the reason, as CLI11
// wants it.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cfloat>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace hdt::tools {

// A flag that is given again replaces the earlier value, as with argparse: command lines are put
// together from a script and from what is appended to it. Applies to the flags, groups and subcommands
// that are added later. A flag that takes a list needs trigger_on_parse() in addition, or its values add
// up.
inline void last_one_counts(CLI::App& app) {
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

// A finite number from `least` to `most`. CLI::Range accepts nan, and prints large bounds with 300
// digits.
inline CLI::Validator number(double least, double most) {
  const auto check = [least, most](std::string& text) -> std::string {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= least && value <= most)
      return "";
    return fmt::format("'{}' given; expected a number from {:g} to {:g}", text, least, most);
  };
  return {check, fmt::format("FLOAT in [{:g} - {:g}]", least, most)};
}

// A number of at least `least` that a float can hold.
inline CLI::Validator float_number(double least) { return number(least, FLT_MAX); }

// A whole number from `least` to `most` in decimal notation. CLI11 would take 010 as octal 8, and would
// call 1e6 out of range.
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

// For unsigned numbers: CLI11 takes -1 as the largest one.
inline CLI::Validator not_below_zero() {
  return {[](std::string& text) {
            return text.starts_with('-')
                       ? fmt::format("'{}' given; expected a whole number of at least 0", text)
                       : std::string();
          },
          ""};
}

// The name of a file or folder. An empty name is probably a script's variable that was not set; it must
// not mean "no file".
inline CLI::Validator path_name() {
  return {[](std::string& text) {
            return text.empty() ? std::string("'' given; expected a name") : std::string();
          },
          ""};
}

}  // namespace hdt::tools
