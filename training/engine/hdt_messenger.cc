// hdt_messenger.cc: the messenger on libhdt: groups are made by hdtCommSplit, operations are requests.
// Waits have no limit of their own, as a failed group ends all of its operations.
#include "training/engine/hdt_messenger.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "training/engine/hdt_operation.h"
#include "training/engine/ownership.h"

namespace hdt::training {
namespace {

// A communicator that this object owns.
class Group {
 public:
  Group() = default;
  explicit Group(hdtComm_t comm) : comm_(comm) {}
  Group(Group&& other) noexcept : comm_(std::exchange(other.comm_, nullptr)) {}
  Group& operator=(Group&& other) noexcept {
    std::swap(comm_, other.comm_);
    return *this;
  }
  ~Group() { hdtCommDestroy(comm_); }
  hdtComm_t get() const { return comm_; }

 private:
  hdtComm_t comm_ = nullptr;
};

// One hdtCommSplit of the world into groups of a class. Collective.
Result<Group> split(hdtComm_t world, int color, int key, const char* group_class) {
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  config.group_class = group_class;
  hdtComm_t made = nullptr;
  HDT_RETURN_IF_ERROR(status_of(hdtCommSplit(world, color, key, &made, &config)));
  return Group(made);
}

// Used by the rank's training thread only.
class HdtMessenger final : public Messenger {
 public:
  HdtMessenger(hdtComm_t world, const Layout& layout) : world_(world), size_(layout.world_size()) {}

  // Makes the groups, in the same order on every rank: the replica's, then the owner sets' round by
  // round. In a round a rank is in one set at most, whose number is its colour. A rank in none takes
  // part in the split without getting a group. Keys are positions, so that a stage's number is its rank
  // in the replica's group.
  Status connect(const Layout& layout) {
    HDT_RETURN_IF_ERROR(status_of(hdtCommUserRank(world_, &rank_)));
    const Position position = layout.position_of(rank_);
    Result<Group> replica = split(world_, position.replica, position.stage, "pp");
    if (!replica.is_ok()) return replica.status();
    replica_ = replica.take();
    const std::vector<OwnerSet> sets = owner_sets(layout);
    // One split of the world for each round.
    for (const std::vector<int>& round : disjoint_rounds(sets)) {
      int color = HDT_SPLIT_NO_COLOR;
      for (const int set : round) {
        if (std::ranges::find(sets[set].ranks, rank_) != sets[set].ranks.end()) color = set;
      }
      Result<Group> owners = split(world_, color, position.replica, "dp");
      if (!owners.is_ok()) return owners.status();
      if (color != HDT_SPLIT_NO_COLOR) owners_.emplace(color, owners.take());
    }
    return Status::ok();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  // hdtMemAlloc: libhdt sends from and receives into such memory without a copy.
  Result<FloatMemory> allocate(size_t elements) override {
    void* memory = nullptr;
    HDT_RETURN_IF_ERROR(status_of(hdtMemAlloc(&memory, elements * sizeof(float))));
    return FloatMemory(static_cast<float*>(memory), [](float* allocated) { hdtMemFree(allocated); });
  }

  Result<Pending> send_to_stage(int stage, std::span<const float> values) override {
    hdtRequest_t request = nullptr;
    return started(replica_.get(), request,
                   hdtSend(values.data(), values.size(), HDT_FLOAT32, stage, replica_.get(), &request));
  }

  Result<Pending> receive_from_stage(int stage, std::span<float> values) override {
    hdtRequest_t request = nullptr;
    return started(replica_.get(), request,
                   hdtRecv(values.data(), values.size(), HDT_FLOAT32, stage, replica_.get(), &request));
  }

  // A null request: the call blocks.
  Status broadcast_in_replica(int stage, std::span<int64_t> values) override {
    return status_of(
        hdtBroadcast(values.data(), values.data(), values.size(), HDT_INT64, stage, replica_.get(), nullptr));
  }

  Result<Pending> sum_over_owners(int owner_set, std::span<float> values) override {
    hdtComm_t comm = owners_.at(owner_set).get();
    hdtRequest_t request = nullptr;
    return started(
        comm, request,
        hdtAllReduce(values.data(), values.data(), values.size(), HDT_FLOAT32, HDT_SUM, comm, &request));
  }

  Status sum_over_world(std::span<double> values) override { return over_world(values, HDT_SUM); }
  Status max_over_world(std::span<double> values) override { return over_world(values, HDT_MAX); }

 private:
  // The operation of a call that has begun. `request` is a reference, because the call whose result is
  // passed beside it fills it: arguments are evaluated before the function reads them.
  static Result<Pending> started(hdtComm_t comm, hdtRequest_t& request, hdtResult_t result) {
    HDT_RETURN_IF_ERROR(status_of(result));
    return Pending(std::make_unique<HdtOperation>(comm, request));
  }

  Status over_world(std::span<double> values, hdtRedOp_t how) {
    return status_of(
        hdtAllReduce(values.data(), values.data(), values.size(), HDT_FLOAT64, how, world_, nullptr));
  }

  hdtComm_t world_;  // not owned
  int size_;
  int rank_ = 0;
  Group replica_;                // of class "pp"; ranks are stages
  std::map<int, Group> owners_;  // by owner set, those that this rank is in
};

}  // namespace

Result<std::unique_ptr<Messenger>> make_hdt_messenger(hdtComm_t world, const Layout& layout) {
  auto messenger = std::make_unique<HdtMessenger>(world, layout);
  HDT_RETURN_IF_ERROR(messenger->connect(layout));
  return std::unique_ptr<Messenger>(std::move(messenger));
}

}  // namespace hdt::training
