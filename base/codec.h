// codec.h: control messages as bytes. Integers are little endian and there is no padding. Every read
// checks its bounds. A Reader that has met bad bytes stays failed, so a parser reads all its fields and
// asks once at the end. Strings and lists have limits that the caller gives, so foreign bytes never
// decide how much memory is taken. Neither class is thread-safe; each message has its own.
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

// Appends fields to a growing buffer. The reader must read the same fields with the same types in the
// same order, because the bytes carry no type and no name.
class Writer {
 public:
  // An integer or enum as its bytes in memory, which the assertion above makes little endian.
  template <typename T>
  Writer& put(T value) {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    return put_bytes({reinterpret_cast<const std::byte*>(&value), sizeof value});
  }
  // The bytes alone, without a length: the reader must know how many there are.
  Writer& put_bytes(std::span<const std::byte> bytes) {
    const size_t at = bytes_.size();
    bytes_.resize(at + bytes.size());
    if (!bytes.empty()) std::memcpy(bytes_.data() + at, bytes.data(), bytes.size());
    return *this;
  }
  // A 32-bit length in bytes, then the characters without a closing zero.
  Writer& put_string(std::string_view text) {
    put(static_cast<uint32_t>(text.size()));
    return put_bytes(std::as_bytes(std::span(text)));
  }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  // Moves the bytes out. The Writer must not be used afterwards.
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

// Reads the fields of a message that somebody else wrote. The bytes are borrowed: they must live as long
// as the Reader. After a failed read every later read returns zeros or empty texts, so loops that are
// bounded by a count that was read end at once.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  // An integer or enum; 0 if the bytes are missing. An enum is not checked against its named values.
  template <typename T>
  T get() {
    static_assert(std::is_integral_v<T> || std::is_enum_v<T>);
    T value{};
    if (take(sizeof value)) std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  // Fills `into` with the next `into.size()` bytes. Fills it with zeros if so many are not left.
  void get_bytes(std::span<std::byte> into) {
    if (take(into.size())) {
      if (!into.empty()) std::memcpy(into.data(), taken_.data(), into.size());
    } else if (!into.empty()) {
      std::memset(into.data(), 0, into.size());
    }
  }
  // A text as put_string() wrote it. More than `limit` bytes are a failure; nothing is allocated before
  // that is checked.
  std::string get_string(size_t limit) {
    const auto length = get<uint32_t>();
    if (length > limit || !take(length)) {
      failed_ = true;
      return {};
    }
    return {reinterpret_cast<const char*>(taken_.data()), length};
  }
  // The same for a text that people read, as the reason of a failure: bytes that may not stand on a
  // terminal or in a log line are replaced (to_plain_text()).
  std::string get_text(size_t limit) { return to_plain_text(get_string(limit)); }
  // The same for a name: control characters and broken UTF-8 are a failure. A name that passes may stand
  // in log lines and tables.
  std::string get_name(size_t limit) {
    std::string name = get_string(limit);
    if (is_plain_text(name)) return name;
    failed_ = true;
    return {};
  }
  // A 32-bit number of elements. A count above `limit` is a failure and gives 0.
  uint32_t get_count(uint32_t limit) {
    const auto count = get<uint32_t>();
    if (count > limit) failed_ = true;
    return failed_ ? 0 : count;
  }
  // True if every read succeeded and nothing is left over. Parsers accept a message only then.
  bool complete() const { return !failed_ && rest_.empty(); }
  bool failed() const { return failed_; }
  // Marks the message as bad. For values that were read without error but make no sense.
  void fail() { failed_ = true; }

 private:
  // Moves the next `size` bytes from rest_ to taken_. Returns false, and fails the Reader for good, if
  // so many are not left.
  bool take(size_t size) {
    if (failed_ || size > rest_.size()) {
      failed_ = true;
      return false;
    }
    taken_ = rest_.first(size);
    rest_ = rest_.subspan(size);
    return true;
  }
  std::span<const std::byte> rest_;   // not read yet
  std::span<const std::byte> taken_;  // what the latest read took
  bool failed_ = false;
};

}  // namespace hdt
