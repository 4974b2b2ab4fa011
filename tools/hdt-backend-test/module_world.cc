// module_world.cc: chooses the NICs from the settings, and serves them to the suite.
#include "tools/hdt-backend-test/module_world.h"

#include <net/if.h>

#include <algorithm>
#include <iterator>
#include <stdexcept>

#include "base/join.h"
#include "tools/hdt-backend-test/pairing.h"
#include "transports/loader/loader.h"

namespace hdt::backend_test {

namespace {

using transport::Backend;
using transport::DeviceInfo;

// Set by prepare() once, before the tests, which run on the same thread.
Settings& settings() {
  static Settings held;
  return held;
}

// The chosen NICs.
std::vector<DeviceInfo>& nics() {
  static std::vector<DeviceInfo> held;
  return held;
}

// A backend may be made several times in a process, once for prepare() and once for each test.
Result<std::unique_ptr<Backend>> make() {
  return transport::make_backend(settings().backend, settings().options, transport::module_folders());
}

// The suite's view of the backend. It lives for one test.
class ModuleWorld : public transport::World {
 public:
  explicit ModuleWorld(std::unique_ptr<Backend> backend) : backend_(std::move(backend)) {}
  Backend& backend() override { return *backend_; }
  // The suite asks for several devices; with one NIC all of them are the same.
  DeviceInfo device(int index) override { return nics()[static_cast<size_t>(index) % nics().size()]; }
  // The address of a device that listened and is gone: it is destroyed at the end of this function.
  std::string refusing_address() override {
    auto device = backend_->open(nics().back());
    EXPECT_TRUE(device.is_ok()) << device.status().to_string();
    if (!device.is_ok()) return "";
    const auto address = device.value()->listen(0);
    EXPECT_TRUE(address.is_ok()) << address.status().to_string();
    return address.is_ok() ? address.value() : "";
  }
  std::string silent_address() override { return settings().silent_address; }
  // Whether the backend finds out who writes before anything is placed. An RDMA adapter knows keys, and no
  // peers.
  bool knows_writers() override { return settings().backend != "rdma"; }

 private:
  std::unique_ptr<Backend> backend_;
};

// For messages: all NICs that the backend finds, with their state.
std::string list_of(const std::vector<DeviceInfo>& found) {
  return found.empty() ? "none" : join(found, ", ", describe);
}

// The message for a name that the backend does not know. Interfaces without an address are not among the
// backend's NICs, so they get a hint of their own.
std::string unknown_name(const std::string& name, const std::vector<DeviceInfo>& found) {
  const bool interface = !name.empty() && ::if_nametoindex(name.c_str()) != 0;
  return "--nic: '" + name + "' given; backend " + settings().backend +
         (interface ? " cannot use that interface (is it up, has it an address?); it finds "
                    : " has no such NIC; it finds ") +
         list_of(found);
}

// The NICs that --nic names, each of which must exist and be up. Without --nic: all NICs that are up.
Result<std::vector<DeviceInfo>> wanted_of(const std::vector<DeviceInfo>& found) {
  std::vector<DeviceInfo> wanted;
  for (const std::string& name : settings().nics) {
    const auto is_called = [&](const DeviceInfo& nic) { return name == nic.name || name == nic.address; };
    if (std::none_of(found.begin(), found.end(), is_called))
      return Status(Code::kNoBackend, unknown_name(name, found));
    for (const DeviceInfo& nic : found) {
      if (!is_called(nic)) continue;
      if (!nic.up) {
        return Status(Code::kNoBackend, "--nic: '" + name + "' given; " + describe(nic) +
                                            ": bring it up (ip link set " + nic.name +
                                            " up) and check its cable, or name another of " + list_of(found));
      }
      const auto same = [&](const DeviceInfo& other) {
        return other.name == nic.name && other.address == nic.address;
      };
      if (std::none_of(wanted.begin(), wanted.end(), same)) wanted.push_back(nic);
    }
  }
  if (!settings().nics.empty()) return wanted;
  std::copy_if(found.begin(), found.end(), std::back_inserter(wanted),
               [](const DeviceInfo& nic) { return nic.up; });
  if (wanted.empty())
    return Status(Code::kNoBackend,
                  "backend " + settings().backend + " has no NIC that is up; it finds " + list_of(found));
  return wanted;
}

// Adds the advice. The status already says what was tried.
Status with_remedy(const Status& status) {
  if (!settings().addresses.empty())
    return {status.code(),
            "--address: " + status.message() + "; expected addresses of this machine that reach each other"};
  if (settings().nics.size() > 1)
    return {status.code(), "--nic: " + status.message() +
                               "; name NICs of one subnet, or one alone, which is then tested with itself"};
  return {status.code(), status.message() + "; name NICs that reach each other with --nic"};
}

}  // namespace

// 1. Make the backend: are the options right, and is its library there?
// 2. Find the NICs that the settings ask for.
// 3. If addresses are given, use them in place of the first NIC's.
// 4. Connect pairs of these until one works.
Result<std::vector<std::string>> prepare(const Settings& wished) {
  settings() = wished;
  auto backend = make();
  if (!backend.is_ok()) return backend.status();
  auto found = backend.value()->discover();
  if (!found.is_ok()) return found.status();
  auto wanted = wanted_of(found.value());
  if (!wanted.is_ok()) return wanted.status();
  std::vector<DeviceInfo> candidates = wanted.take();
  if (!wished.addresses.empty()) {
    const DeviceInfo first = candidates.front();
    candidates.assign(wished.addresses.size(), first);
    for (size_t i = 0; i < candidates.size(); ++i) candidates[i].address = wished.addresses[i];
  }
  // Named NICs must reach each other, and are not replaced by one that reaches itself.
  const bool named = !wished.nics.empty() || !wished.addresses.empty();
  const auto paired = pair_nics(*backend.value(), candidates, !named);
  if (!paired.is_ok()) return with_remedy(paired.status());
  const auto& [from, to, passed_over] = paired.value();
  // If a NIC was paired with itself, the suite gets only one.
  nics() = {from};
  if (to.name != from.name || to.address != from.address) nics().push_back(to);
  return passed_over;
}

const std::vector<DeviceInfo>& chosen_nics() { return nics(); }

std::unique_ptr<transport::World> make_world() {
  auto backend = make();
  // It could be made a moment ago, in prepare().
  if (!backend.is_ok()) throw std::runtime_error(backend.status().to_string());
  return std::make_unique<ModuleWorld>(backend.take());
}

}  // namespace hdt::backend_test
