// log.h: one logger for the process: HDT_LOG_INFO("joined {}", LogTag{.group = "dp", .rank = 3}). A
// disabled line costs one relaxed load; its arguments are not evaluated. Every entry is one line of
// text. Any thread may log at any time, also while the process exits. An enabled line takes a lock and
// writes to a file, so threads that move data log rare events only. Standard error never blocks: lines that
// nobody reads are left out and counted, and a line there has at most 4096 bytes.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt {

// Ordered by importance: a level is logged if it is not below the lowest one that is enabled.
enum class LogLevel : int { kTrace = 0, kDebug, kInfo, kWarn, kError };

// The level named "trace", "debug", "info", "warn" or "error"; nothing for any other text.
std::optional<LogLevel> parse_log_level(std::string_view text);
const char* log_level_name(LogLevel level);

// Sends the log to `file`, which is appended to, or to standard error if `file` is empty, and sets the
// lowest level. May be called again, also while other threads log. Until the first call, warnings and
// errors go to standard error. kConfig: the file cannot be opened; the log then stays as it was.
Status init_log(LogLevel level, const std::string& file);

// Sets up the client library's log: standard error, with the level of `level_text` (the value of
// HDT_LOG_LEVEL, null if unset) and warn by default. kConfig: the text is no level.
Status init_client_log(const char* level_text);

// Names the calling thread, for the log and for tools like top. At most 15 bytes are kept, the kernel's
// limit.
void set_thread_name(const std::string& name);
// The calling thread's name: the one given to set_thread_name(), else the one the kernel has. Valid
// until the thread ends.
const char* thread_name();

// The subject of a line, in one spelling: "group=dp rank=3 op=17 node=n1". Fields left at their defaults
// are not printed. The texts are borrowed and must live until the line is written.
struct LogTag {
  std::string_view group = {};
  int rank = -1;    // in the group
  int64_t op = -1;  // number of the call in its group
  std::string_view node = {};
  std::string to_string() const;
};

// Behind the macros only. `lowest_level` is a LogLevel; write() formats, cleans and writes the line.
namespace log_internal {
extern std::atomic<int> lowest_level;
void write(LogLevel level, fmt::string_view format, fmt::format_args arguments);
template <typename... Arguments>
void write_checked(LogLevel level, fmt::format_string<Arguments...> format, Arguments&&... arguments) {
  write(level, format, fmt::make_format_args(arguments...));
}
}  // namespace log_internal

// Whether lines of `level` are written. Relaxed: a change of the level may be seen a little later.
inline bool log_enabled(LogLevel level) {
  return static_cast<int>(level) >= log_internal::lowest_level.load(std::memory_order_relaxed);
}

}  // namespace hdt

// Checks the level before it evaluates the format's arguments.
#define HDT_LOG_AT(level, ...)                                                             \
  do {                                                                                     \
    if (::hdt::log_enabled(level)) ::hdt::log_internal::write_checked(level, __VA_ARGS__); \
  } while (0)
#define HDT_LOG_TRACE(...) HDT_LOG_AT(::hdt::LogLevel::kTrace, __VA_ARGS__)
#define HDT_LOG_DEBUG(...) HDT_LOG_AT(::hdt::LogLevel::kDebug, __VA_ARGS__)
#define HDT_LOG_INFO(...) HDT_LOG_AT(::hdt::LogLevel::kInfo, __VA_ARGS__)
#define HDT_LOG_WARN(...) HDT_LOG_AT(::hdt::LogLevel::kWarn, __VA_ARGS__)
#define HDT_LOG_ERROR(...) HDT_LOG_AT(::hdt::LogLevel::kError, __VA_ARGS__)

template <>
struct fmt::formatter<hdt::LogTag> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <typename Context>
  auto format(const hdt::LogTag& tag, Context& context) const {
    const std::string text = tag.to_string();
    return std::copy(text.begin(), text.end(), context.out());
  }
};
