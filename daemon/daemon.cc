// daemon.cc: forwards every call to Control, which is the daemon.
#include "daemon/daemon.h"

#include "daemon/control/control.h"

namespace hdt::daemon {

Daemon::Daemon(Config config, uint32_t host_pid, const std::string& job_secret)
    : control_(std::make_unique<Control>(std::move(config), host_pid, job_secret)) {}

Daemon::~Daemon() = default;

// The interface is apart from Control so that programs which run a daemon see none of its parts.
Status Daemon::start() { return control_->start(); }

void Daemon::stop(int64_t drain_ms, const std::string& why) { control_->stop(drain_ms, why); }

bool Daemon::prepare_handover(int64_t drain_ms) { return control_->prepare_handover(drain_ms); }

void Daemon::reconfigure(Config config) { control_->reconfigure(std::move(config)); }

bool Daemon::leave_to_others(int64_t quiet_ms, int64_t drain_ms) {
  return control_->leave_to_others(quiet_ms, drain_ms);
}

std::string Daemon::settings() const { return control_->settings(); }

std::vector<std::string> Daemon::hung_threads() { return control_->hung_threads(); }

}  // namespace hdt::daemon
