// hand_over.h: moves what a device has collected, completions mostly, to whoever polls it.
#pragma once

#include <iterator>
#include <vector>

namespace hdt::transport {

// Appends all of `collected` to `to`, and empties it. True if there was anything.
template <typename T>
bool hand_over(std::vector<T>& collected, std::vector<T>& to) {
  const bool any = !collected.empty();
  to.insert(to.end(), std::make_move_iterator(collected.begin()), std::make_move_iterator(collected.end()));
  collected.clear();
  return any;
}

}  // namespace hdt::transport
