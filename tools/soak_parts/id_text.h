// id_text.h: the id of a group as a word of text, for programs that are controlled by lines of text.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

#include "hdt/hdt.h"

namespace hdt {

// Two hexadecimal digits a byte.
inline std::string hex_of(const hdtUniqueId_t& id) {
  std::string text;
  char digits[3];
  for (const char byte : id.internal) {
    std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(byte));
    text += digits;
  }
  return text;
}

// The reverse. A text that is no id gives an id that the library refuses when it is used.
inline hdtUniqueId_t id_of(const std::string& hex) {
  hdtUniqueId_t id{};
  for (size_t i = 0; i < sizeof id.internal && 2 * i + 1 < hex.size(); ++i) {
    id.internal[i] = static_cast<char>(std::strtol(hex.substr(2 * i, 2).c_str(), nullptr, 16));
  }
  return id;
}

}  // namespace hdt
