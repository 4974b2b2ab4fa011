// stop_signal.cc: the handler sets a flag, and nothing else.
#include "tools/hdt-train/stop_signal.h"

#include <signal.h>

#include <atomic>

namespace hdt::tools {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may write it");

}  // namespace

void catch_stop_signal() {
  struct sigaction action {};
  action.sa_handler = [](int) { requested = true; };
  action.sa_flags = SA_RESTART;  // no call of another part is cut short
  ::sigaction(SIGTERM, &action, nullptr);
}

bool stop_requested() { return requested; }

}  // namespace hdt::tools
