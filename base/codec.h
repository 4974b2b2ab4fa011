// codec.h: control messages as bytes. Little endian, no padding; every read is bounds-checked and a Reader
// that met bad bytes stays failed, so a parser can read all fields and ask once. Lengths of strings and lists
// have limits given at the call: foreign bytes never decide how much memory is taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/foreign_text.h"

namespace hdt {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little endian");

class Writer {
 public:
  template <typename T>
  Writer& put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    return put_bytes({reinterpret_cast<const std::byte*>(&value), sizeof value});
  }
  Writer& put_bytes(std::span<const std::byte> bytes) {
    const size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    if (!bytes.empty()) std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
    return *this;
  }
  // A 32-bit length, then the characters.
  Writer& put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    return put_bytes(std::as_bytes(std::span(text)));
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <typename T>
  T get() {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    T value{};
    if (take(sizeof value)) std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  // Exactly `into.size()` bytes; zeroes where they are missing.
  void get_bytes(std::span<std::byte> into) {
    if (take(into.size())) {
      if (!into.empty()) std::memcpy(into.data(), taken_.data(), into.size());
    } else if (!into.empty()) {
      std::memset(into.data(), 0, into.size());
    }
  }
  std::string get_string(size_t limit) {
    const auto length = get<uint32_t>();
    if (length > limit || !take(length)) {
      failed_ = true;
      return {};
    }
    return {reinterpret_cast<const char*>(taken_.data()), length};
  }
  // A text without control characters: it may stand in log lines and tables.
  std::string get_name(size_t limit) {
    std::string name = get_string(limit);
    if (is_printable(name)) return name;
    failed_ = true;
    return {};
  }
  // A 32-bit element count of at most `limit`; 0 and failed beyond it.
  uint32_t get_count(uint32_t limit) {
    const auto count = get<uint32_t>();
    if (count > limit) failed_ = true;
    return failed_ ? 0 : count;
  }
  // True if every read succeeded and nothing is left over.
  bool complete() const { return !failed_ && rest_.empty(); }
  bool failed() const { return failed_; }
  // What was read makes no sense.
  void fail() { failed_ = true; }

 private:
  bool take(size_t size) {
    if (failed_ || size > rest_.size()) {
      failed_ = true;
      return false;
    }
    taken_ = rest_.first(size);
    rest_ = rest_.subspan(size);
    return true;
  }
  std::span<const std::byte> rest_;
  std::span<const std::byte> taken_;
  bool failed_ = false;
};

}  // namespace hdt
