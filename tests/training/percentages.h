// percentages.h: reads shares of time out of texts, for tests.
#pragma once

#include <regex>
#include <string>

namespace hdt::training::testing {

// Of all "N %" in the text.
inline int sum_of_percentages(const std::string& text) {
  const std::regex number(R"((\d+) %)");
  int sum = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), number), end; at != end; ++at)
    sum += std::stoi((*at)[1]);
  return sum;
}

}  // namespace hdt::training::testing
