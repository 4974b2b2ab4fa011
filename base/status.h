// status.h: how every part of HDT reports failure: a code, which programs see as hdtResult_t, and a
// message for people.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

namespace hdt {

// The codes of hdtResult_t; libclient checks that the numbers are equal. code_text() has the meaning of
// each. kInProgress is no failure to a caller that polls: it means "not yet".
enum class Code : int {
  kSuccess = 0,
  kInProgress = 1,
  kInvalidArgument = 2,
  kInvalidUsage = 3,
  kSystem = 4,
  kInternal = 5,
  kNoDaemon = 6,
  kDaemonLost = 7,
  kVersion = 8,
  kTimeout = 9,
  kMismatch = 10,
  kRankLost = 11,
  kLink = 12,
  kAborted = 13,
  kConfig = 14,
  kNoBackend = 15,
};
// Codes are 0 to kCodeCount - 1. A code that was read from foreign memory or a message is checked by
// is_code().
inline constexpr int kCodeCount = 16;
constexpr bool is_code(Code code) {
  return static_cast<int>(code) >= 0 && static_cast<int>(code) < kCodeCount;
}

// A constant text for a code, "unknown code" for a number that is none.
const char* code_text(Code code);

// Success, or a code with a message. A value type; making a successful one does not allocate.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  static Status ok() { return {}; }
  // kSystem with `what`, the text of `error` (an errno value), and the limit behind it if it is one
  // (limits.h).
  static Status from_errno(const std::string& what, int error);

  bool is_ok() const { return code_ == Code::kSuccess; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  // The code's text and the message: "a rank of the group was lost: rank 3 of group dp ..."
  std::string to_string() const;

 private:
  Code code_ = Code::kSuccess;
  std::string message_;
};

// A value, or the Status that says why there is none. value() and take() may be called only if is_ok();
// otherwise they throw std::bad_variant_access.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::move(value)) {}  // NOLINT(google-explicit-constructor)
  // `status` must be a failure.
  Result(Status status) : held_(std::move(status)) {}  // NOLINT(google-explicit-constructor)
  bool is_ok() const { return held_.index() == 0; }
  T& value() { return std::get<0>(held_); }
  const T& value() const { return std::get<0>(held_); }
  // Moves the value out; to be called once.
  T take() { return std::move(std::get<0>(held_)); }
  // kSuccess if there is a value.
  Status status() const { return is_ok() ? Status::ok() : std::get<1>(held_); }

 private:
  std::variant<T, Status> held_;
};

}  // namespace hdt

// Returns from the calling function when `expression` (a Status) is a failure.
#define HDT_RETURN_IF_ERROR(expression)           \
  do {                                            \
    ::hdt::Status hdt_status_ = (expression);     \
    if (!hdt_status_.is_ok()) return hdt_status_; \
  } while (0)
