// control_health.cc: what Control says of the daemon itself: whether its threads work, and what it uses.
#include <sys/resource.h>

#include "daemon/control/control.h"
#include "daemon/diagnosis/own_use.h"

namespace hdt::daemon {

// A thread that sleeps is healthy, so it is asked and woken first (heartbeat.h), and judged at the next
// call: if it has not passed its loop since then, it hangs. As long as one hangs, no thread is asked anew.
// The caller decides how long a thread has to answer, by the time between its calls.
std::vector<std::string> Control::hung_threads() {
  std::vector<std::string> hung;
  if (!heartbeat_.has_passed()) hung.emplace_back("hdt-control");
  for (const auto& engine : engines_) {
    if (!engine->is_alive()) hung.push_back("hdt-engine-" + std::to_string(engine->index()));
  }
  if (!hung.empty()) return hung;
  heartbeat_.ask();
  mailbox_.post([] {});
  for (const auto& engine : engines_) engine->ask_alive();
  return hung;
}

// These numbers are of all users, also if the viewer sees only its own groups: they identify nobody.
nlohmann::json Control::own_use(size_t groups) const {
  // The keys are those that hdtctl and the tests read.
  const OwnUse use = own_use_now();
  return {{"descriptors", use.descriptors},
          {"descriptors_allowed", use.descriptors_allowed},
          {"ports_listening", use.listening},
          {"ports_connected", use.connected},
          {"threads", use.threads},
          {"memory_bytes", use.memory_bytes},
          {"shared_memories", use.shared_memories},
          {"shared_bytes", use.shared_bytes},
          {"sessions", sessions_->all().size()},
          {"groups", groups}};
}

}  // namespace hdt::daemon
