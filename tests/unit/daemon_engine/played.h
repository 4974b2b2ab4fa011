// played.h: the surroundings of parts of an engine, played by tests: they do nothing, or what a test's own
// class has them do.
#pragma once

#include <array>
#include <memory>
#include <utility>

#include "daemon/engine/engine.h"
#include "daemon/group/group_services.h"

namespace hdt::daemon {

// An engine with two backends and at most one memory.
class PlayedServices : public GroupServices {
 public:
  explicit PlayedServices(std::shared_ptr<SharedMemory> memory = nullptr) : memory_(std::move(memory)) {}
  std::shared_ptr<SharedMemory> find_memory(uint32_t, uint64_t) override { return memory_; }
  Result<transport::RegionKey> register_memory(const SharedMemory&, uint32_t backend) override {
    ++registered[backend];
    return transport::RegionKey{};
  }
  void deregister_memory(const transport::RegionKey&, uint32_t backend) override { --registered[backend]; }
  Status grant(const transport::RegionKey&, uint32_t, const NodeId&) override { return Status::ok(); }
  void revoke(const transport::RegionKey&, uint32_t, const NodeId&) override {}
  void on_back(uint32_t) override {}

  // registrations that have not ended, by backend
  std::array<int, 2> registered{};

 private:
  std::shared_ptr<SharedMemory> memory_;
};

// A control thread that does not listen.
class PlayedControl : public EngineEvents {
 public:
  void on_prepare(const NodeChange::Asker&, const ClassPrepare&) override {}
  void on_commit(uint64_t, bool) override {}
  void on_proposed(uint64_t, const Status&) override {}
  void on_measured(const KnownMeasurements&) override {}
  void on_back(uint64_t, uint32_t) override {}
  void on_ended(GroupFacts) override {}
};

}  // namespace hdt::daemon
