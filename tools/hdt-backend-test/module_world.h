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

// Loads the backend and finds two of its NICs that reach each other (or one that reaches itself), which the
// suite then uses in every test. The settings of the program's one run. kConfig: they are wrong; else the
// backend cannot be used. Returns lines about what was tried before and not chosen.
Result<std::vector<std::string>> prepare(const Settings& settings);
// One or two.
const std::vector<transport::DeviceInfo>& chosen_nics();
std::unique_ptr<transport::World> make_world();

}  // namespace hdt::backend_test
