// simulated_world.h: the rdma backend over simulated adapters, for the conformance suite and for tests of
// what goes wrong.
#pragma once

#include <memory>
#include <string>

#include "tests/protocol/rdma/simulated_verbs.h"
#include "tests/protocol/transports/transport_conformance.h"
#include "transports/rdma/backend.h"

namespace hdt::transport::rdma {

class SimulatedWorld : public World {
 public:
  Backend& backend() override { return *backend_; }
  SimulatedVerbs& verbs() { return *verbs_; }
  DeviceInfo device(int index) override {
    DeviceInfo info;
    info.name = "sim" + std::to_string(index + 1);
    info.address = "127.0.2." + std::to_string(index + 1);
    return info;
  }
  std::string refusing_address() override { return "127.0.2.2:9"; }
  std::string silent_address() override { return "127.0.2.9:4000"; }
  bool knows_writers() override { return false; }

 private:
  std::shared_ptr<SimulatedVerbs> verbs_ = std::make_shared<SimulatedVerbs>();
  std::unique_ptr<Backend> backend_ = make_backend(verbs_);
};

inline std::unique_ptr<World> make_simulated_world() { return std::make_unique<SimulatedWorld>(); }

}  // namespace hdt::transport::rdma
