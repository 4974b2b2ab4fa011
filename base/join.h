// join.h: lists in texts for people: "eth0, eth1".
#pragma once

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

}  // namespace hdt
