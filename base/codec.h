// codec.h: messages as bytes. Integers are little endian and there is no padding. A message is described
// once, by a function that names its fields in their order. Writer and reader both follow it, so they
// cannot differ:
//
//   void fields(auto& codec, Is<Cancel> auto& m) {
//     codec.bytes(m.key);
//     codec.number(m.code, m.rank);
//     codec.text(m.text, kMaxText);
//   }
//
// With a Writer, fields() appends the fields of a constant message; with a Reader, it fills them in. The
// function stands in the namespace of its message, where callers find it through the argument.
//
// Every read checks its bounds. A Reader that has met bad bytes stays failed, so whoever reads a message
// asks once at the end, with complete(), and checks the values after that. Strings and lists have limits,
// so foreign bytes never decide how much memory is taken. Neither class is thread-safe; each message has
// its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/foreign_text.h"

namespace hdt {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the wire format is little endian");

// `Is<Cancel> auto& m` is a Cancel& in a function that reads, and a const Cancel& in one that writes.
template <typename T, typename Message>
concept Is = std::is_same_v<std::remove_const_t<T>, Message>;

// The types that number() takes. A bool is none, because a byte can have values that no bool has: see flag().
template <typename T>
concept Number = (std::is_integral_v<T> && !std::is_same_v<T, bool>) || std::is_enum_v<T>;

// The kind `std::monostate` of a message that has several kinds: it has no fields.
void fields(auto&, Is<std::monostate> auto&) {}

// Appends fields to a growing buffer. All functions have their counterpart in Reader.
class Writer {
 public:
  // Integers or enums as their bytes in memory, which the assertion above makes little endian.
  template <Number... T>
  Writer& number(const T&... values) {
    (append({reinterpret_cast<const std::byte*>(&values), sizeof values}), ...);
    return *this;
  }
  // One byte, 0 or 1.
  Writer& flag(bool value) { return number(static_cast<uint8_t>(value)); }
  // A flag whether there is a number, then the number; 0 where there is none.
  template <Number T>
  Writer& optional(const std::optional<T>& value) {
    return flag(value.has_value()).number(value.value_or(T{}));
  }
  // A number in which the value `none` means that there is none.
  template <Number T>
  Writer& number_or(T none, const std::optional<T>& value) {
    return number(value.value_or(none));
  }
  // Bytes alone, without a length: the reader must know how many there are. `from` is an array, a span, a
  // string or a vector; a literal is written with its closing zero.
  Writer& bytes(const auto& from) {
    append(std::as_bytes(std::span(from)));
    return *this;
  }
  // Any bytes: a 32-bit length, then the bytes. Nothing is cut: it is the reader that refuses more than
  // `limit` bytes.
  Writer& string(std::string_view from, size_t /*limit*/) {
    return number(static_cast<uint32_t>(from.size())).bytes(from);
  }
  // The same, but cut to `limit` bytes.
  Writer& cut_string(std::string_view from, size_t limit) { return string(from.substr(0, limit), limit); }
  // A text that people read, as the reason of a failure. It is cut as well.
  Writer& text(std::string_view from, size_t limit) { return cut_string(from, limit); }
  // A name, which is never cut.
  Writer& name(std::string_view from, size_t limit) { return string(from, limit); }
  // A 32-bit number of elements, then each of them by each(element). It is the reader that refuses more
  // than `limit` elements.
  template <typename T>
  Writer& list(const std::vector<T>& elements, uint32_t /*limit*/, const auto& each) {
    number(static_cast<uint32_t>(elements.size()));
    for (const T& element : elements) each(element);
    return *this;
  }
  // The same for elements that have fields().
  template <typename T>
  Writer& list(const std::vector<T>& elements, uint32_t limit) {
    return list(elements, limit, [this](const T& element) { fields(*this, element); });
  }
  // A message of one of several kinds: a byte with the index of its kind, then its fields.
  template <typename... Kinds>
  Writer& one_of(const std::variant<Kinds...>& message) {
    number(static_cast<uint8_t>(message.index()));
    std::visit([this](const auto& kind) { fields(*this, kind); }, message);
    return *this;
  }

  const std::vector<std::byte>& written() const { return bytes_; }
  // Moves the bytes out. The Writer must not be used afterwards.
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  void append(std::span<const std::byte> from) {
    const size_t at = bytes_.size();
    bytes_.resize(at + from.size());
    if (!from.empty()) std::memcpy(bytes_.data() + at, from.data(), from.size());
  }

  std::vector<std::byte> bytes_;
};

// Reads the fields of a message that somebody else wrote. The bytes are borrowed: they must live as long
// as the Reader. After a failed read every later read gives zeros, empty texts and empty lists.
class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  // An enum is not checked against its named values.
  template <Number... T>
  Reader& number(T&... values) {
    ((values = get<T>()), ...);
    return *this;
  }
  // The number itself, for one that decides what follows; 0 if the bytes are missing.
  template <Number T>
  T get() {
    T value{};
    if (take(sizeof value)) std::memcpy(&value, taken_.data(), sizeof value);
    return value;
  }
  // Another value than 0 and 1 is a failure.
  Reader& flag(bool& value) {
    const auto byte = get<uint8_t>();
    if (byte > 1) failed_ = true;
    value = byte == 1;
    return *this;
  }
  // Another number than 0 where there is none is a failure.
  template <Number T>
  Reader& optional(std::optional<T>& value) {
    bool there = false;
    flag(there);
    const T number = get<T>();
    if (!there && number != T{}) failed_ = true;
    value = there ? std::optional(number) : std::nullopt;
    return *this;
  }
  template <Number T>
  Reader& number_or(T none, std::optional<T>& value) {
    const T number = get<T>();
    value = number != none ? std::optional(number) : std::nullopt;
    return *this;
  }
  // Fills an array, or a string or vector as long as it is. Fills it with zeros if so many bytes are not
  // left.
  Reader& bytes(auto& into) {
    const auto room = std::as_writable_bytes(std::span(into));
    const bool there = take(room.size());
    for (size_t i = 0; i < room.size(); ++i) room[i] = there ? taken_[i] : std::byte{0};
    return *this;
  }
  // More than `limit` bytes are a failure; nothing is allocated before that is checked.
  Reader& string(std::string& into, size_t limit) {
    const auto length = get<uint32_t>();
    if (length > limit) failed_ = true;
    into.clear();
    if (take(length)) into.assign(reinterpret_cast<const char*>(taken_.data()), length);
    return *this;
  }
  Reader& cut_string(std::string& into, size_t limit) { return string(into, limit); }
  // Bytes that may not stand on a terminal or in a log line are replaced (to_plain_text()).
  Reader& text(std::string& into, size_t limit) {
    string(into, limit);
    into = to_plain_text(std::move(into));
    return *this;
  }
  // Control characters and broken UTF-8 are a failure. A name that passes may stand in log lines and
  // tables.
  Reader& name(std::string& into, size_t limit) {
    string(into, limit);
    if (is_plain_text(into)) return *this;
    failed_ = true;
    into.clear();
    return *this;
  }
  // A count above `limit` is a failure and gives an empty list. The list ends at the first element that
  // fails.
  template <typename T>
  Reader& list(std::vector<T>& elements, uint32_t limit, const auto& each) {
    elements.clear();
    const auto count = get<uint32_t>();
    if (count > limit) failed_ = true;
    for (uint32_t i = 0; i < count && !failed_; ++i) each(elements.emplace_back());
    return *this;
  }
  template <typename T>
  Reader& list(std::vector<T>& elements, uint32_t limit) {
    return list(elements, limit, [this](T& element) { fields(*this, element); });
  }
  // An index that no kind has is a failure and changes nothing.
  template <typename... Kinds>
  Reader& one_of(std::variant<Kinds...>& message) {
    read_kind<0>(get<uint8_t>(), message);
    return *this;
  }

  // True if every read succeeded and nothing is left over. A message is accepted only then.
  bool complete() const { return !failed_ && rest_.empty(); }
  bool failed() const { return failed_; }

 private:
  // Reads the kind with this index, which is not below `kFirst`.
  template <size_t kFirst, typename... Kinds>
  void read_kind(size_t index, std::variant<Kinds...>& message) {
    if constexpr (kFirst == sizeof...(Kinds)) {
      failed_ = true;
    } else if (index == kFirst) {
      fields(*this, message.template emplace<kFirst>());
    } else {
      read_kind<kFirst + 1>(index, message);
    }
  }
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
