// service_manager.cc: the sender of sd_notify messages, written by hand rather than with libsystemd, as
// the protocol is one datagram a message.
#include "base/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>

#include "base/log.h"
#include "base/whole_number.h"

namespace hdt {

namespace {

// Reads a variable and removes it. "" if it is not set.
std::string taken_variable(const char* name) {
  const char* const value = std::getenv(name);
  std::string text = value == nullptr ? "" : value;
  ::unsetenv(name);
  return text;
}

}  // namespace

Result<ServiceManager> ServiceManager::of_environment() {
  ServiceManager manager;
  manager.address_ = taken_variable("NOTIFY_SOCKET");
  const std::string interval = taken_variable("WATCHDOG_USEC");
  const std::string process = taken_variable("WATCHDOG_PID");
  if (manager.address_.empty()) return manager;
  sockaddr_un room{};
  // A path, or a name in the abstract name space. Other families of sockets (vsock) are not supported.
  const bool names_one = manager.address_[0] == '/' || manager.address_[0] == '@';
  if (!names_one || manager.address_.size() < 2 || manager.address_.size() >= sizeof room.sun_path) {
    return Status(Code::kConfig, "NOTIFY_SOCKET is '" + manager.address_ +
                                     "'; expected a path, or '@' and a name, of fewer than " +
                                     std::to_string(sizeof room.sun_path) + " bytes");
  }
  manager.socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!manager.socket_.valid()) return Status::from_errno("making a socket for NOTIFY_SOCKET", errno);
  if (interval.empty()) return manager;
  const auto wanted = whole_number<int64_t>(interval);
  if (!wanted || *wanted <= 0)
    return Status(Code::kConfig, "WATCHDOG_USEC is '" + interval + "'; expected microseconds");
  // The variables may have been inherited from a service that started this process; the watchdog is then
  // that service's.
  if (!process.empty() && whole_number<int64_t>(process) != ::getpid()) return manager;
  manager.watchdog_ms_ = std::max<int64_t>(*wanted / 1000, 1);  // at least 1, as 0 means that nobody watches
  return manager;
}

// The socket is not connected, because a manager that is restarted has another socket at the same
// address. An abstract name begins with a zero byte, for which '@' stands, and has no closing zero;
// hence the exact size.
void ServiceManager::say(const std::string& words) {
  if (!socket_.valid()) return;
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  std::copy(address_.begin(), address_.end(), to.sun_path);
  if (to.sun_path[0] == '@') to.sun_path[0] = '\0';
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  const ssize_t sent = ::sendto(socket_.get(), words.data(), words.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&to), size);
  const int error = sent < 0 ? errno : 0;
  // One line for each row of failures; a manager that is away would fill the log with watchdog messages.
  if (error != 0 && !failed_) {
    HDT_LOG_WARN("cannot send '{}' to the service manager at {}: {}", words.substr(0, words.find('\n')),
                 address_, Status::from_errno("sending", error).message());
  }
  failed_ = error != 0;
}

}  // namespace hdt
