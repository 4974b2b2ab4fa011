// target.h: what a fuzz target is: a function that takes foreign bytes to a parser, checks what must hold
// of whatever comes out, and says whether the parser took them; a function that makes its seeds from real
// encoders; and one that spoils seeds, so that the reasons to refuse an input are reached.
//
// The same file is compiled twice: with libFuzzer (preset fuzz, tools/fuzz), where each target is a
// program; and everywhere into fuzz_replay, which runs seeds and the stored corpus as an ordinary test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace hdt::fuzz {

using Bytes = std::vector<std::byte>;

struct Target {
  // True: the parser took the input. Ends the process where something does not hold that must.
  bool (*take)(std::span<const std::byte> input) = nullptr;
  // Inputs that the parser takes, one of each kind that it knows.
  std::vector<Bytes> (*seeds)() = nullptr;
  // Inputs that the parser must refuse: seeds, each spoilt in one place.
  std::vector<Bytes> (*spoilt)() = nullptr;
};

// By name. In a libFuzzer program there is one.
std::map<std::string, Target>& targets();

struct Registration {
  Registration(const char* name, Target target) { targets().emplace(name, target); }
};

// True if a message that was read is written as the bytes that it was read from: nothing of it was left
// unread or was taken for something else. Bytes of a text that are not plain were replaced by '?'
// (Reader::text()).
inline bool is_written_as(std::span<const std::byte> input, std::span<const std::byte> written) {
  return std::ranges::equal(written, input, [](std::byte now, std::byte before) {
    return now == before || (now == std::byte{'?'} && (before < std::byte{0x20} || before > std::byte{0x7e}));
  });
}

// Takes an input apart: choices first, then what is left. Reads zeros behind the end.
class Choices {
 public:
  explicit Choices(std::span<const std::byte> input) : rest_(input) {}
  template <typename T>
  T get() {
    T value{};
    const size_t size = std::min(sizeof value, rest_.size());
    if (size > 0) std::memcpy(&value, rest_.data(), size);
    rest_ = rest_.subspan(size);
    return value;
  }
  std::span<const std::byte> bytes(size_t size) {
    const auto taken = rest_.first(std::min(size, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::span<const std::byte> rest() const { return rest_; }
  bool empty() const { return rest_.empty(); }

 private:
  std::span<const std::byte> rest_;
};

inline Bytes to_bytes(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

inline std::string to_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// The bytes with `value` at an offset, which may be behind their end.
template <typename T>
Bytes changed(Bytes bytes, size_t at, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  bytes.resize(std::max(bytes.size(), at + sizeof value));
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

// Makes two of each message that no decoder may take: one that lacks the last byte, and one with a byte more.
// A message of one byte, its kind, is left out.
inline std::vector<Bytes> cut_and_extended(const std::vector<Bytes>& messages) {
  std::vector<Bytes> all;
  for (const Bytes& message : messages) {
    if (message.size() < 2) continue;
    all.emplace_back(message.begin(), message.end() - 1);
    all.push_back(message);
    all.back().push_back(std::byte{0});
  }
  return all;
}

[[noreturn]] inline void broken(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, condition);
  std::abort();
}

}  // namespace hdt::fuzz

// A condition that must hold for every input.
#define HDT_HOLDS(condition) \
  ((condition) ? static_cast<void>(0) : ::hdt::fuzz::broken(#condition, __FILE__, __LINE__))

// At the end of a target's file, in its namespace.
#define HDT_FUZZ_TARGET(name, take, seeds, spoilt) \
  static const ::hdt::fuzz::Registration registered_##name(#name, ::hdt::fuzz::Target{take, seeds, spoilt});
