// log.cc: the logger, on spdlog. The spdlog objects are our own, not those of its global registry, because
// the program that links libhdt may use spdlog too.
#include "base/log.h"

#include <poll.h>
#include <pthread.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/dist_sink.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <mutex>

namespace hdt {
namespace {

// By LogLevel.
constexpr const char* kLevelNames[] = {"trace", "debug", "info", "warn", "error"};
constexpr size_t kThreadNameBytes = 16;  // the system's limit, with the closing zero

// A copy of the thread's name, so that a line needs no system call for it. Empty: not asked for yet.
thread_local std::array<char, kThreadNameBytes> this_thread_name{};

// The field "%*" of the pattern: the name of the thread that logs.
class ThreadNameFlag : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg&, const std::tm&, spdlog::memory_buf_t& out) override {
    const std::string_view name = thread_name();
    out.append(name.data(), name.data() + name.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<ThreadNameFlag>(); }
};

// "2024-05-01 12:00:00.123456 warn  [hdt-engine-0] text"
std::unique_ptr<spdlog::formatter> make_formatter() {
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<ThreadNameFlag>('*').set_pattern("%Y-%m-%d %H:%M:%S.%f %-5l [%*] %v");
  return formatter;
}

// Standard error, which never blocks the thread that logs: where it is a pipe that nobody reads, the engine
// would stand still with its groups. Lines that do not fit are left out, and the next one that fits is
// preceded by their number. Called under base_sink's lock.
class StandardErrorSink : public spdlog::sinks::base_sink<std::mutex> {
 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    if (left_out_ > 0) {
      const std::string text =
          fmt::format("{} line(s) of the log were left out, as standard error was not read", left_out_);
      if (written_now({message.logger_name, spdlog::level::warn, text})) left_out_ = 0;
    }
    if (left_out_ > 0 || !written_now(message)) ++left_out_;
  }
  void flush_() override {}

 private:
  // A pipe that poll() calls writable takes this much without blocking, and in one piece.
  static constexpr size_t kMaxBytes = PIPE_BUF;

  // False: not written, as that would block, or nobody can read it.
  bool written_now(const spdlog::details::log_msg& message) {
    spdlog::memory_buf_t line;
    formatter_->format(message, line);
    if (line.size() > kMaxBytes) {
      constexpr std::string_view kCut = "...\n";
      line.resize(kMaxBytes);
      std::copy(kCut.begin(), kCut.end(), line.end() - kCut.size());
    }
    pollfd ready{.fd = STDERR_FILENO, .events = POLLOUT, .revents = 0};
    if (::poll(&ready, 1, 0) != 1 || (ready.revents & POLLOUT) == 0 || (ready.revents & POLLERR) != 0) {
      return false;
    }
    // Another process may have filled the pipe since, so the kernel is asked not to wait. Before Linux 6.4 it
    // cannot do so for pipes: then a wait is possible, in that moment only. Files on disks are waited for.
    const iovec bytes{.iov_base = line.data(), .iov_len = line.size()};
    ssize_t written = ::pwritev2(STDERR_FILENO, &bytes, 1, -1, RWF_NOWAIT);
    struct stat file {};
    if (written < 0 &&
        (errno == EOPNOTSUPP || (::fstat(STDERR_FILENO, &file) == 0 && S_ISREG(file.st_mode)))) {
      written = ::writev(STDERR_FILENO, &bytes, 1);
    }
    return written >= 0;
  }

  uint64_t left_out_ = 0;
};

// The process's logger. The outer sink (dist_sink_mt) holds the lock, so that the inner one can be replaced
// while other threads log. Every line is flushed at once: the latest lines before a crash matter most.
struct Logger {
  Logger() : outer(std::make_shared<spdlog::sinks::dist_sink_mt>()), logger("hdt", outer) {
    replace(std::make_shared<StandardErrorSink>());
    logger.set_level(spdlog::level::trace);  // lowest_level decides
    logger.flush_on(spdlog::level::trace);
  }
  void replace(std::shared_ptr<spdlog::sinks::sink> sink) {
    sink->set_formatter(make_formatter());
    outer->set_sinks({std::move(sink)});
  }
  std::shared_ptr<spdlog::sinks::dist_sink_mt> outer;
  spdlog::logger logger;
};

// Never destroyed, because threads may still log while the process exits.
Logger& the_logger() {
  static auto* logger = new Logger;
  return *logger;
}

spdlog::level::level_enum spdlog_level(LogLevel level) {
  switch (level) {
    case LogLevel::kTrace:
      return spdlog::level::trace;
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarn:
      return spdlog::level::warn;
    case LogLevel::kError:
      break;
  }
  return spdlog::level::err;
}

}  // namespace

namespace log_internal {

// Written by init_log(), read by every log statement. Relaxed, as it orders nothing.
std::atomic<int> lowest_level{static_cast<int>(LogLevel::kWarn)};

// Formats the line, cleans it and writes it. May throw bad_alloc; the macros let that pass.
void write(LogLevel level, fmt::string_view format, fmt::format_args arguments) {
  std::string line = fmt::vformat(format, arguments);
  // Names and texts from other processes may hold line breaks or terminal codes; an entry stays one plain
  // line.
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  the_logger().logger.log(spdlog_level(level), spdlog::string_view_t(line));
}

}  // namespace log_internal

std::optional<LogLevel> parse_log_level(std::string_view text) {
  for (size_t i = 0; i < std::size(kLevelNames); ++i) {
    if (text == kLevelNames[i]) return static_cast<LogLevel>(i);
  }
  return std::nullopt;
}

const char* log_level_name(LogLevel level) { return kLevelNames[static_cast<size_t>(level)]; }

// The level is set last, after the sink is in place.
Status init_log(LogLevel level, const std::string& file) {
  if (file.empty()) {
    the_logger().replace(std::make_shared<StandardErrorSink>());
  } else {
    try {
      // The constructor throws if the file cannot be opened.
      the_logger().replace(std::make_shared<spdlog::sinks::basic_file_sink_mt>(file));
    } catch (const spdlog::spdlog_ex& error) {
      return {Code::kConfig, fmt::format("log.file: cannot be opened for appending: {}", error.what())};
    }
  }
  log_internal::lowest_level.store(static_cast<int>(level), std::memory_order_relaxed);
  return Status::ok();
}

Status init_client_log(const char* level_text) {
  LogLevel level = LogLevel::kWarn;
  if (level_text != nullptr && *level_text != '\0') {
    const auto parsed = parse_log_level(level_text);
    if (!parsed) {
      return {Code::kConfig,
              fmt::format("environment HDT_LOG_LEVEL: expected trace, debug, info, warn or error, "
                          "found \"{}\"",
                          level_text)};
    }
    level = *parsed;
  }
  return init_log(level, "");
}

void set_thread_name(const std::string& name) {
  this_thread_name.fill('\0');
  std::memcpy(this_thread_name.data(), name.data(), std::min(name.size(), kThreadNameBytes - 1));
  pthread_setname_np(pthread_self(), this_thread_name.data());
}

const char* thread_name() {
  if (this_thread_name[0] == '\0') {
    pthread_getname_np(pthread_self(), this_thread_name.data(), this_thread_name.size());
  }
  return this_thread_name.data();
}

std::string LogTag::to_string() const {
  std::string text;
  const auto add = [&text](const char* key, const auto& value) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  };
  if (!group.empty()) add("group", group);
  if (rank >= 0) add("rank", rank);
  if (op >= 0) add("op", op);
  if (!node.empty()) add("node", node);
  return text;
}

}  // namespace hdt
