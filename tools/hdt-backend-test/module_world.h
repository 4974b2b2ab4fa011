// module_world.h: where the conformance suite runs a backend that was loaded: its NICs on this machine.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/protocol/transports/transport_conformance.h"
#include "transports/module.h"

namespace hdt::backend_test {

struct Settings {
  std::string backend;
  transport::BackendOptions options;
  std::vector<std::string> nics;       // names or addresses; empty: those that are up
  std::vector<std::string> addresses;  // to use in place of the NICs' own
  std::string silent_address;          // empty: none is known
};

// Loads the backend and finds its NICs; what the suite then does for every test. The settings of the program's one run.
Status prepare(const Settings& settings);
const std::vector<transport::DeviceInfo>& chosen_nics();
std::unique_ptr<transport::World> make_world();

}  // namespace hdt::backend_test
