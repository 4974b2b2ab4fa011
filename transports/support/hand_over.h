// hand_over.h: moves the completions that a device has collected to the caller of poll().
#pragma once

#include <iterator>
#include <vector>

namespace hdt::transport {

// Appends all of `collected` to `to` and empties it. True if there was anything. If it throws for want of
// memory, nothing is lost: `collected` is emptied only after the insertion.
template <typename T>
bool hand_over(std::vector<T>& collected, std::vector<T>& to) {
  const bool any = !collected.empty();
  to.insert(to.end(), std::make_move_iterator(collected.begin()), std::make_move_iterator(collected.end()));
  collected.clear();
  return any;
}

}  // namespace hdt::transport
