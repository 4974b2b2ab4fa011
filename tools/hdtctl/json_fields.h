// json_fields.h: reads fields of a daemon's answer. A field may be missing or have another type, as a
// daemon of another release sends other fields. The functions *_of() take such a field as empty. The
// functions *_at() throw json::exception, which main.cc reports. The const operator[] of json must not be
// used: it only asserts that the field is there.
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

// `otherwise` if there is no such truth value.
inline bool flag_of(const nlohmann::json& from, const char* key, bool otherwise = false) {
  const auto found = from.find(key);
  return found != from.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

// A whole number. get<int64_t>() would also convert a fraction, which is undefined behaviour where the
// fraction is out of range.
inline int64_t whole(const nlohmann::json& value) {
  return value.get_ref<const nlohmann::json::number_integer_t&>();
}

inline std::string text_at(const nlohmann::json& from, const char* key) {
  return from.at(key).get<std::string>();
}
inline bool flag_at(const nlohmann::json& from, const char* key) { return from.at(key).get<bool>(); }
inline int64_t whole_at(const nlohmann::json& from, const char* key) { return whole(from.at(key)); }
inline double number_at(const nlohmann::json& from, const char* key) { return from.at(key).get<double>(); }
inline const nlohmann::json::array_t& list_at(const nlohmann::json& from, const char* key) {
  return from.at(key).get_ref<const nlohmann::json::array_t&>();
}

}  // namespace hdt::ctl
