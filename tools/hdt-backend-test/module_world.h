// module_world.h: the world in which the conformance suite runs on a loaded backend: the backend's NICs
// on this machine. The suite makes a world for every test by a function without arguments, so the
// settings are kept for the whole process.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "tests/protocol/transports/transport_conformance.h"
#include "transports/module.h"

namespace hdt::backend_test {

// The settings of the command line.
struct Settings {
  std::string backend;
  transport::BackendOptions options;
  // Names or addresses. Empty: the NICs that are up.
  std::vector<std::string> nics;
  // Addresses that take the place of the NICs' own, all of them on the first NIC. Empty: the NICs' own.
  std::vector<std::string> addresses;
  // An address that does not answer. Empty: none is known, and the test that needs it is skipped.
  std::string silent_address;
};

// Keeps the settings, loads the backend, and finds two of its NICs that reach each other, or one that
// reaches itself. All tests use these. Returns one line for each pair that was tried before. kConfig:
// the settings are wrong; any other code: the backend cannot be used. Call it once, before the tests;
// blocks for up to a minute and a half.
Result<std::vector<std::string>> prepare(const Settings& settings);
// The NICs that prepare() has chosen, one or two.
const std::vector<transport::DeviceInfo>& chosen_nics();
// A world with a backend of its own. Throws std::runtime_error if the backend cannot be made any more.
std::unique_ptr<transport::World> make_world();

}  // namespace hdt::backend_test
