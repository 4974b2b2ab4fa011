// join.h: lists in texts for people: "eth0, eth1".
#pragma once

#include <cstddef>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

namespace hdt {

// The texts of all items, in order, with `between` between them; "" for no items. `text_of` makes the text of
// an item.
template <typename Items, typename TextOf>
std::string join(const Items& items, std::string_view between, TextOf text_of) {
  std::string all;
  bool first = true;
  for (const auto& item : items) {
    if (!std::exchange(first, false)) all += between;
    all += text_of(item);
  }
  return all;
}

// The same for items that are texts themselves.
template <typename Texts>
std::string join(const Texts& texts, std::string_view between) {
  return join(
      texts, between, [](const auto& text) -> const auto& { return text; });
}

// Numbers, of which only the first `most` are named: "0, 1, 2 and 7 more". A job may have thousands of ranks,
// and a sentence is to be read.
template <typename Numbers>
std::string join_first(const Numbers& numbers, size_t most) {
  std::string all;
  for (auto number = numbers.begin(); number != numbers.end(); ++number) {
    if (most-- == 0) return all + " and " + std::to_string(std::distance(number, numbers.end())) + " more";
    all += (all.empty() ? "" : ", ") + std::to_string(*number);
  }
  return all;
}

}  // namespace hdt
