// gloo_store.cc: exchanges the lengths first, then keys and values, padded to the longest.
#include "bench/commbench/gloo_store.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace hdt::bench {
namespace {

// Bytes of a rank's key and value.
struct Lengths {
  int32_t key;
  int32_t data;
};

void require(const Status& status) {
  if (!status.is_ok()) throw std::runtime_error("exchanging Gloo's addresses: " + status.message());
}

}  // namespace

void GlooStore::set(const std::string& key, const std::vector<char>& data) {
  const Lengths mine{static_cast<int32_t>(key.size()), static_cast<int32_t>(data.size())};
  // 1. Everybody's lengths; 2. everybody's text, padded to the same length; 3. take the texts apart.
  std::vector<Lengths> lengths(static_cast<size_t>(group_.ranks()));
  require(group_.gather_all(&mine, sizeof mine, lengths.data()));
  size_t longest = 0;
  for (const Lengths& each : lengths) longest = std::max(longest, static_cast<size_t>(each.key + each.data));
  longest = (longest + 3) / 4 * 4;  // the group's bookkeeping moves whole 32-bit words
  std::string own = key + std::string(data.begin(), data.end());
  own.resize(longest);
  std::vector<char> all(longest * lengths.size());
  require(group_.gather_all(own.data(), longest, all.data()));
  for (size_t rank = 0; rank < lengths.size(); ++rank) {
    const char* start = all.data() + rank * longest;
    const char* value = start + lengths[rank].key;
    values_[std::string(start, value)] = std::vector<char>(value, value + lengths[rank].data);
  }
}

std::vector<char> GlooStore::get(const std::string& key) {
  wait({key});
  return values_.at(key);
}

// set() has gathered everything, so a key that is missing now will never come.
void GlooStore::wait(const std::vector<std::string>& keys) {
  for (const std::string& key : keys) {
    if (values_.count(key) == 0)
      throw std::runtime_error("Gloo asks for '" + key + "', which no rank has published");
  }
}

}  // namespace hdt::bench
