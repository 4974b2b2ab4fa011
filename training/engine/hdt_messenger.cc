// hdt_messenger.cc: the messenger on libhdt: groups are made by splits, operations are requests.
// Waits have no limit of their own, as a failed group ends all of its operations.
#include "training/engine/hdt_messenger.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "training/engine/hdt_operation.h"
#include "training/engine/ownership.h"

namespace hdt::training {
hdtDataType_t data_type_of(NumberType type) {
  switch (type) {
    case NumberType::kBFloat16:
      return HDT_BFLOAT16;
    case NumberType::kFloat16:
      return HDT_FLOAT16;
    case NumberType::kFloat64:
      return HDT_FLOAT64;
    case NumberType::kFloat32:
      break;
  }
  return HDT_FLOAT32;
}

namespace {

// One split of the world into groups of a class. Collective. Nothing for a rank without a colour.
Result<std::optional<Communicator>> split(Communicator& world, int color, int key, const char* group_class,
                                          bool deterministic = false) {
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  config.group_class = group_class;
  config.deterministic = deterministic ? 1 : 0;
  std::optional<Communicator> made;
  HDT_RETURN_IF_ERROR(status_of([&] { made = world.split(color, key, &config); }));
  return made;
}

// The values as libhdt takes them: SendBuffer (const void) or RecvBuffer (void).
template <typename Void, typename Byte>
Buffer<Void> buffer_of(BasicTypedSpan<Byte> values) {
  return {values.data(), values.size(), data_type_of(values.type())};
}

// Used by the rank's training thread only, but for abort().
class HdtMessenger final : public Messenger {
 public:
  explicit HdtMessenger(Communicator& world) : world_(world) {}

  // Makes the groups, in the same order on every rank: the replica's, then the owners' round by round. Owner
  // sets of the same ranks share a group, which is that of the first of them. In a round a rank is in one
  // group at most, whose number is its colour. A rank in none takes part in the split without getting a
  // group. Keys are positions, so that a stage's number is its rank in the replica's group, and an owner's
  // place in its set the one in the set's group.
  Status connect(const Layout& layout, bool deterministic) {
    const Position position = layout.position_of(rank());
    Result<std::optional<Communicator>> replica = split(world_, position.replica, position.stage, "pp");
    if (!replica.is_ok()) return replica.status();
    replica_ = replica.take();
    const std::vector<OwnerSet> sets = owner_sets(layout);
    group_of_ = owner_groups(sets);
    // One split of the world for each round.
    for (const std::vector<int>& round : disjoint_rounds(sets)) {
      int color = HDT_SPLIT_NO_COLOR;
      int place = 0;
      for (const int set : round) {
        const auto found = std::ranges::find(sets[set].ranks, rank());
        if (found == sets[set].ranks.end()) continue;
        color = set;
        place = static_cast<int>(found - sets[set].ranks.begin());
      }
      Result<std::optional<Communicator>> owners = split(world_, color, place, "dp", deterministic);
      if (!owners.is_ok()) return owners.status();
      if (owners.value()) owners_.emplace(color, *owners.take());
    }
    return Status::ok();
  }

  int rank() const override { return world_.rank(); }
  int size() const override { return world_.size(); }

  // libhdt sends from and receives into such memory without a copy.
  Result<TypedMemory> allocate(NumberType type, size_t elements) override {
    Memory<std::byte> memory;
    HDT_RETURN_IF_ERROR(status_of([&] { memory = Memory<std::byte>(elements * bytes_of(type)); }));
    return TypedMemory(type, elements,
                       {memory.release(), [](std::byte* allocated) { hdtMemFree(allocated); }});
  }

  Result<Pending> send_to_stage(int stage, ConstTypedSpan values) override {
    return started(*replica_, [&] { return replica_->send_async(buffer_of<const void>(values), stage); });
  }

  Result<Pending> receive_from_stage(int stage, TypedSpan values) override {
    return started(*replica_, [&] { return replica_->recv_async(buffer_of<void>(values), stage); });
  }

  Status broadcast_in_replica(int stage, std::span<int64_t> values) override {
    return status_of([&] { replica_->broadcast(values, stage); });
  }

  Result<Pending> sum_over_owners(int owner_set, TypedSpan values) override {
    Communicator& owners = owners_.at(group_of_[owner_set]);
    return started(owners, [&] { return owners.all_reduce_async(buffer_of<void>(values)); });
  }

  Result<Pending> reduce_scatter_over_owners(int owner_set, TypedSpan values,
                                             std::span<const size_t> counts) override {
    Communicator& owners = owners_.at(group_of_[owner_set]);
    const std::vector<size_t> starts = starts_of(counts);
    const TypedSpan own = values.subspan(starts[owners.rank()], counts[owners.rank()]);
    return started(owners, [&] {
      return owners.reduce_scatter_v_async(buffer_of<const void>(values), buffer_of<void>(own), counts);
    });
  }

  Result<Pending> all_gather_over_owners(int owner_set, TypedSpan values,
                                         std::span<const size_t> counts) override {
    Communicator& owners = owners_.at(group_of_[owner_set]);
    const std::vector<size_t> starts = starts_of(counts);
    const TypedSpan own = values.subspan(starts[owners.rank()], counts[owners.rank()]);
    return started(owners, [&] {
      return owners.all_gather_v_async(buffer_of<const void>(own), buffer_of<void>(values), counts, starts);
    });
  }

  Status sum_over_world(std::span<double> values) override {
    return status_of([&] { world_.all_reduce(values); });
  }
  Status max_over_world(std::span<double> values) override {
    return status_of([&] { world_.all_reduce(values, HDT_MAX); });
  }

  // The groups are made by then, and stay until the end of the object.
  void abort() override {
    if (replica_) (void)hdtCommAbort(replica_->get());
    for (const auto& [set, owners] : owners_) (void)hdtCommAbort(owners.get());
  }

 private:
  // Where each member's part begins. A member's place in the set is its rank in the set's group (connect()).
  static std::vector<size_t> starts_of(std::span<const size_t> counts) {
    std::vector<size_t> starts(counts.size());
    std::exclusive_scan(counts.begin(), counts.end(), starts.begin(), size_t{0});
    return starts;
  }

  // The operation that `begin` begins on `comm`.
  template <typename Begin>
  static Result<Pending> started(const Communicator& comm, Begin begin) {
    Request request;
    HDT_RETURN_IF_ERROR(status_of([&] { request = begin(); }));
    return Pending(std::make_unique<HdtOperation>(comm, std::move(request)));
  }

  Communicator& world_;
  std::optional<Communicator> replica_;  // of class "pp"; ranks are stages
  std::vector<int> group_of_;            // by owner set: its group
  std::map<int, Communicator> owners_;   // by group, those that this rank is in
};

}  // namespace

Status cause_of(Communicator& world, const Status& failure) {
  if (failure.code() == Code::kMismatch) return failure;
  constexpr auto kWait = std::chrono::seconds(2);
  for (const auto end = std::chrono::steady_clock::now() + kWait; std::chrono::steady_clock::now() < end;) {
    hdtResult_t code = HDT_SUCCESS;
    if (hdtCommGetAsyncError(world.get(), &code) != HDT_SUCCESS) break;
    if (code != HDT_SUCCESS) return {static_cast<Code>(code), hdtCommErrorMessage(world.get())};
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return failure;
}

Result<std::unique_ptr<Messenger>> make_hdt_messenger(Communicator& world, const Layout& layout,
                                                      bool deterministic) {
  auto messenger = std::make_unique<HdtMessenger>(world);
  HDT_RETURN_IF_ERROR(messenger->connect(layout, deterministic));
  return std::unique_ptr<Messenger>(std::move(messenger));
}

}  // namespace hdt::training
