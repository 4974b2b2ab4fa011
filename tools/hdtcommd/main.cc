// hdtcommd: a node's daemon. It owns the NICs; training processes talk to it through libhdt.
//
// This file is the process around daemon/daemon.h: flags and configuration, log, signals, and the
// service manager (systemd). The order of the start:
// 1. Configuration, log and limits: nothing runs yet, and errors go to standard error.
// 2. Signals are blocked, so that all threads of the daemon inherit the mask.
// 3. The daemon starts. StartWatch handles signals meanwhile.
// 4. The service manager hears that the daemon is ready, and main() waits for signals until one ends it.
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/stat.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/config.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/run_main.h"
#include "base/service_manager.h"
#include "base/start_thread.h"
#include "base/unique_fd.h"
#include "daemon/daemon.h"
#include "tools/common/flag_checks.h"

namespace {

constexpr int kWrongUsage = 2;
constexpr int kFailed = 1;
// How long a start that is under way at a signal may go on.
constexpr int kStartGraceMs = 2'000;

// One line on standard error. Returns the exit code: wrong usage for a wrong configuration, else
// failure.
int complain(const hdt::Status& status) {
  std::fprintf(stderr, "hdtcommd: %s\n", status.message().c_str());
  return status.code() == hdt::Code::kConfig ? kWrongUsage : kFailed;
}

// Makes the folders of node.socket that are missing. The folder of the default socket is used by nothing
// else, so nobody else makes it. All users must be able to reach the daemon, whatever the umask is;
// security.allow_groups says who may use it.
hdt::Status make_socket_folder(const std::string& socket) {
  std::vector<std::filesystem::path> missing;
  std::error_code error;
  const auto folder = std::filesystem::path(socket).parent_path();
  // From the innermost folder outwards, up to one that exists.
  for (auto path = folder; !path.empty() && !std::filesystem::exists(path, error); path = path.parent_path())
    missing.push_back(path);
  for (auto path = missing.rbegin(); path != missing.rend(); ++path) {
    if (std::filesystem::create_directory(*path, error)) ::chmod(path->c_str(), 0755);
    if (error)
      return {hdt::Code::kSystem, "cannot make " + path->string() + " for node.socket: " + error.message()};
  }
  return hdt::Status::ok();
}

// Logs the folders above the socket that shut out other users. A folder that existed before stays as it
// is.
void name_closed_folders(const std::string& socket) {
  for (auto path = std::filesystem::path(socket).parent_path(); path.has_relative_path();
       path = path.parent_path()) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0 || (info.st_mode & S_IXOTH) != 0) continue;
    // The system's daemon is meant for all users; one at another socket may be meant for its own user.
    HDT_LOG_AT(
        socket == hdt::Config().node.socket ? hdt::LogLevel::kWarn : hdt::LogLevel::kInfo,
        "{} has mode {:04o}: other users than its own cannot reach the socket {}; chmod o+x {} lets them",
        path.string(), info.st_mode & 07777, socket, path.string());
  }
}

// Ends the process at SIGTERM or SIGINT while the daemon is starting, because the start may hang, in a
// file system or in a NIC's driver. A start that completes within kStartGraceMs of the signal is left
// alone: main() then takes the signal and ends the daemon in order, so that its socket is removed. It is
// a thread of its own that waits for the signal or for the end of the start; the destructor says that
// the start has ended.
class StartWatch {
 public:
  static hdt::Result<std::unique_ptr<StartWatch>> begin() {
    sigset_t ending;
    sigemptyset(&ending);
    sigaddset(&ending, SIGTERM);
    sigaddset(&ending, SIGINT);
    std::unique_ptr<StartWatch> watch(new StartWatch());
    watch->signals_ = hdt::UniqueFd(::signalfd(-1, &ending, SFD_CLOEXEC));
    watch->started_ = hdt::UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!watch->signals_.valid() || !watch->started_.valid())
      return hdt::Status::from_errno("watching for SIGTERM", errno);
    auto thread = hdt::start_thread("hdt-start", [raw = watch.get()] { raw->run(); });
    if (!thread.is_ok()) return thread.status();
    watch->thread_ = thread.take();
    return watch;
  }
  ~StartWatch() {
    if (!thread_.joinable()) return;
    ::eventfd_write(started_.get(), 1);
    thread_.join();
  }

 private:
  StartWatch() = default;
  void run() {
    std::array<pollfd, 2> either{{{started_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}}};
    // Repeated when it is interrupted.
    while (::poll(either.data(), either.size(), -1) < 0) {
    }
    // The signal is not read here, so it stays pending for main().
    if (either[0].revents != 0 || ::poll(either.data(), 1, kStartGraceMs) > 0) return;
    HDT_LOG_INFO("ending at a signal, before the start was complete");
    std::_Exit(0);
  }

  // A signalfd of the ending signals, and an eventfd that is written when the start has ended.
  hdt::UniqueFd signals_, started_;
  std::thread thread_;
};

// Waits for the next signal. If the service manager has a watchdog, it also sends the beats that say
// that the daemon is working. A beat is sent only if all threads of the daemon pass their loops; each of
// them has half of the watchdog's time for a pass.
class SignalWait {
 public:
  SignalWait(const sigset_t& signals, hdt::daemon::Daemon& daemon, hdt::ServiceManager& manager)
      : signals_(signals), daemon_(daemon), manager_(manager), beat_(next_beat()) {}

  // Returns the next blocked signal. Runs on the main thread.
  int next() {
    for (;;) {
      int signal = 0;
      if (beat_.is_never()) {
        if (::sigwait(&signals_, &signal) == 0) return signal;
        continue;
      }
      // Looked at in each round, so that signals which come often do not delay the beat.
      if (beat_.expired()) beat();
      const int64_t left_ns = beat_.remaining_ns();
      const timespec left{left_ns / hdt::kNsPerSecond, left_ns % hdt::kNsPerSecond};
      signal = ::sigtimedwait(&signals_, nullptr, &left);
      if (signal > 0) return signal;
    }
  }

 private:
  // A quarter of the watchdog's time. Never if there is no watchdog.
  hdt::Deadline next_beat() const {
    const int64_t all_ns = manager_.watchdog_ms() * hdt::kNsPerMs;
    return all_ns == 0 ? hdt::Deadline::never() : hdt::Deadline::after_ns(all_ns / 4);
  }
  // Without a beat the manager kills the daemon at the end of the watchdog's time.
  void beat() {
    beat_ = next_beat();
    const auto hung = daemon_.hung_threads();
    if (hung.empty()) return manager_.alive();
    for (const std::string& name : hung) {
      HDT_LOG_ERROR(
          "thread {} does not pass its loop; the service manager ends the daemon {} ms after its last beat",
          name, manager_.watchdog_ms());
    }
  }

  const sigset_t signals_;
  hdt::daemon::Daemon& daemon_;
  hdt::ServiceManager& manager_;
  hdt::Deadline beat_;
};

int run(int argc, char** argv) {
  // Every configuration key is a flag. take_config_flags() takes these out; CLI11 parses the others.
  std::vector<std::string> arguments(argv + 1, argv + argc);
  auto flags = hdt::take_config_flags(arguments);
  if (!flags.is_ok()) return complain(flags.status());

  CLI::App app{"The daemon of a node: it owns the NICs and moves what groups send between nodes.",
               "hdtcommd"};
  app.footer(
      "Every configuration key is a flag too: --section.key VALUE. Lists are separated by commas.\n"
      "Examples:\n"
      "  hdtcommd                                      the defaults, or /etc/hdt/hdtcommd.toml\n"
      "  hdtcommd --config node.toml --print-config    what would be used, and where each value comes from\n"
      "  hdtcommd --node.socket /tmp/a.sock --nics.addresses 127.0.1.1 --log.level debug\n"
      "SIGHUP reads it again: running groups follow the classes' new settings; other keys are for the next "
      "start.\n"
      "SIGTERM or SIGINT ends it in order: operations under way get timeouts.drain_ms to finish.\n"
      "With --handover SIGTERM leaves groups and operations to the hdtcommd that is started next at the same "
      "socket.");
  hdt::tools::last_one_counts(app);
  std::string file;
  bool print = false;
  bool keys = false;
  bool handover = false;
  app.add_option("--config", file,
                 "Configuration file (TOML); default $HDT_CONFIG or /etc/hdt/hdtcommd.toml");
  app.add_flag(
      "--handover", handover,
      "At SIGTERM end for an upgrade: ranks wait up to timeouts.restart_ms for the next hdtcommd, which "
      "goes on with their operations; groups that are being made get timeouts.drain_ms to finish");
  app.add_flag("--print-config", print, "Print the configuration with the origin of each value, and exit");
  app.add_flag("--config-reference", keys, "Print all configuration keys as Markdown, and exit");
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    // --help.
    if (error.get_exit_code() == 0) return app.exit(error);
    std::fprintf(stderr, "hdtcommd: %s (see hdtcommd --help)\n", error.what());
    return kWrongUsage;
  }

  if (keys) {
    std::fputs(hdt::config_reference().c_str(), stdout);
    return 0;
  }
  // Kept for SIGHUP, which reads the same sources again.
  hdt::ConfigSources sources;
  sources.file = file;
  sources.flags = flags.take();
  sources.environment = hdt::config_environment();
  auto config = hdt::load_config(sources);
  if (!config.is_ok()) return complain(config.status());
  if (print) {
    std::fputs(hdt::print_config(config.value()).c_str(), stdout);
    return 0;
  }
  auto service_manager = hdt::ServiceManager::of_environment();
  if (!service_manager.is_ok()) return complain(service_manager.status());
  hdt::ServiceManager& manager = service_manager.value();
  if (const auto log = hdt::init_log(config.value().log_level(), config.value().log.file); !log.is_ok()) {
    return complain(log);
  }
  // Every process and every rail to another node takes a descriptor or two, which soon exhausts the
  // usual limit of 1,024.
  const auto raised = hdt::raise_descriptor_limit();
  if (const auto made = make_socket_folder(config.value().node.socket); !made.is_ok()) return complain(made);

  // The reader of the log, or a library at its socket, may be gone; the write then fails with EPIPE.
  std::signal(SIGPIPE, SIG_IGN);
  // All threads inherit this mask, so that signals are taken by main() and nowhere else.
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigaddset(&ending, SIGINT);
  sigaddset(&ending, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  const int64_t drain_ms = config.value().timeouts.drain_ms;
  const std::string socket = config.value().node.socket;
  hdt::daemon::Daemon daemon(config.take());
  {
    // The watch ends with this block, when the daemon has started.
    const auto watch = StartWatch::begin();
    if (!watch.is_ok()) return complain(watch.status());
    if (const auto started = daemon.start(); !started.is_ok()) return complain(started);
  }
  if (raised.is_ok()) {
    HDT_LOG_INFO("{} open files are allowed (RLIMIT_NOFILE; the limit was {} at the start)",
                 raised.value().to, raised.value().from);
  } else {
    HDT_LOG_WARN("{}", raised.status().message());
  }
  name_closed_folders(socket);
  manager.ready();
  SignalWait signals(ending, daemon, manager);
  int signal = signals.next();
  // SIGHUP: read the configuration again, with the same flags and environment. A broken file changes
  // nothing.
  for (; signal == SIGHUP; signal = signals.next()) {
    auto again = hdt::load_config(sources);
    if (again.is_ok()) {
      daemon.reconfigure(again.take());
    } else {
      HDT_LOG_ERROR("SIGHUP: {}; nothing was changed", again.status().message());
    }
  }
  // From now on the manager counts the time in which a service must stop, and no longer the beats.
  manager.stopping(signal == SIGTERM ? "ends at SIGTERM" : "ends at SIGINT");
  if (handover && signal == SIGTERM) {
    const bool all = daemon.prepare_handover(drain_ms);
    HDT_LOG_INFO("SIGTERM: the next hdtcommd goes on{}",
                 all ? "" : "; groups that were still being made, or a change of classes, are lost");
    // The successor takes over as it does after a kill. So nothing may be sent to anyone any more, not
    // even by a destructor.
    std::_Exit(0);
  }
  HDT_LOG_INFO("{}: ending", signal == SIGTERM ? "SIGTERM" : "SIGINT");
  daemon.stop(drain_ms, std::string("hdtcommd was stopped by ") + (signal == SIGTERM ? "SIGTERM" : "SIGINT"));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return hdt::run_main("hdtcommd", 1, [&] { return run(argc, argv); });
}
