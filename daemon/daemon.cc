#include "daemon/daemon.h"

#include <unistd.h>

#include "base/clock.h"
#include "daemon/control.h"

namespace hdt::daemon {

Daemon::Daemon(Config config, uint32_t host_pid)
    : control_(std::make_unique<Control>(std::move(config), host_pid)) {}

Daemon::~Daemon() = default;

Status Daemon::start() { return control_->start(); }

void Daemon::stop(int64_t drain_ms, const std::string& why) { control_->stop(drain_ms, why); }

bool Daemon::prepare_handover(int64_t drain_ms) { return control_->prepare_handover(drain_ms); }

void Daemon::reconfigure(Config config) { control_->reconfigure(std::move(config)); }

size_t Daemon::foreign_sessions() const { return control_->foreign_sessions(); }

bool Daemon::wait_until_unused(int64_t timeout_ms) {
  const Deadline until = Deadline::after_ms(timeout_ms);
  while (control_->foreign_sessions() != 0) {
    if (until.expired()) return false;
    ::usleep(2'000);
  }
  return true;
}

}  // namespace hdt::daemon
