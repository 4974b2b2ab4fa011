// whole_number.h: a text that is a number and nothing else. Any thread.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>
#include <system_error>

namespace hdt {

// The number that the whole text is in decimal digits, with a "-" before them where it is negative. Nothing
// if there is anything else in the text, or the type cannot hold the number.
template <typename Number>
std::optional<Number> whole_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end) return std::nullopt;
  return number;
}

}  // namespace hdt
