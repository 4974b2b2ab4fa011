// json_fields.h: the fields of an answer, which may lack them: a daemon of another release sends others.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace hdt::ctl {

inline std::string text_of(const nlohmann::json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_string() ? found->get<std::string>() : "";
}

inline uint64_t number_of(const nlohmann::json& from, const char* key) {
  const auto found = from.find(key);
  return found != from.end() && found->is_number_unsigned() ? found->get<uint64_t>() : 0;
}

}  // namespace hdt::ctl
