// json_fields.h: reads fields of a daemon's answer. A field may be missing or have another type, as a
// daemon of another release sends other fields.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace hdt::ctl {

// "" if there is no such text.
inline std::string text_of(const nlohmann::json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_string() ? found->get<std::string>() : "";
}

// 0 if there is no such whole number of at least 0.
inline uint64_t number_of(const nlohmann::json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

}  // namespace hdt::ctl
