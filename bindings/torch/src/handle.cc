// handle.cc: see handle.h.
#include "handle.h"

#include <charconv>
#include <cstdint>
#include <random>

#include "operation.h"

namespace hdt_torch {

namespace {

constexpr size_t kTokenDigits = 32;
constexpr size_t kIdDigits = 2 * sizeof(hdtUniqueId_t::internal);
const std::string kStart = "hdt:";

void add_byte(std::string& text, uint8_t byte) {
  constexpr char kDigits[] = "0123456789abcdef";
  text += kDigits[byte >> 4];
  text += kDigits[byte & 15];
}

}  // namespace

std::string new_token() {
  std::random_device random;
  std::string token;
  while (token.size() < kTokenDigits) add_byte(token, static_cast<uint8_t>(random()));
  return token;
}

std::string text_of(const Handle& handle) {
  std::string text = kStart + handle.token + ':';
  for (const char byte : handle.id.internal) add_byte(text, static_cast<uint8_t>(byte));
  return text;
}

Handle handle_of(const std::string& text) {
  Handle handle;
  const size_t id_at = kStart.size() + kTokenDigits + 1;
  bool right = text.size() == id_at + kIdDigits && text.starts_with(kStart) && text[id_at - 1] == ':';
  if (right) handle.token = text.substr(kStart.size(), kTokenDigits);
  for (size_t i = 0; right && i < sizeof(handle.id.internal); ++i) {
    uint8_t byte = 0;
    const char* const digits = text.data() + id_at + 2 * i;
    right = std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    handle.id.internal[i] = static_cast<char>(byte);
  }
  if (!right)
    throw Failure("hdt: '" + text.substr(0, 100) +
                  "' given as a handle; expected one of "
                  "get_reconfigure_handle()");
  return handle;
}

}  // namespace hdt_torch
