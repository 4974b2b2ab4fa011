// thread_messenger.cc: queues and collectives under one mutex.
#include "tests/training/engine/thread_messenger.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <span>
#include <thread>
#include <type_traits>

namespace hdt::training::testing {
namespace {

constexpr std::chrono::seconds kDeadline(60);

std::vector<double> doubles_of(ConstTypedSpan values) {
  std::vector<double> doubles;
  with_elements(values, [&](auto elements) {
    using Computed = ComputedAs<std::remove_const_t<typename decltype(elements)::element_type>>;
    for (const auto element : elements) doubles.push_back(static_cast<Computed>(element));
  });
  return doubles;
}

// Rounded to the type of `to`.
void write(std::span<const double> values, TypedSpan to) { convert(values, to); }

void fill_with_nan(TypedSpan values) { write(std::vector<double>(values.size(), std::nan("")), values); }

class Finished final : public Operation {
 public:
  Status wait() override { return Status::ok(); }
};

}  // namespace

bool ThreadWorld::wait(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                       const std::function<bool()>& ready) {
  return changed.wait_for(lock, kDeadline, ready);
}

class ThreadReceive final : public Operation {
 public:
  ThreadReceive(ThreadWorld& world, std::pair<int, int> way, TypedSpan values)
      : world_(world), way_(way), values_(values) {}

  Status wait() override {
    std::unique_lock lock(world_.mutex_);
    ThreadWorld::Queue& queue = world_.queues_[way_];
    if (!ThreadWorld::wait(queue.arrived, lock, [&] { return !queue.messages.empty(); }))
      return {Code::kTimeout, "receive: no message came"};
    const ThreadWorld::Message message = std::move(queue.messages.front());
    queue.messages.pop_front();
    if (message.type != values_.type() || message.bytes.size() != values_.bytes().size())
      return {Code::kMismatch, "receive: another type or size was sent"};
    std::ranges::copy(message.bytes, values_.data());
    return Status::ok();
  }

 private:
  ThreadWorld& world_;
  std::pair<int, int> way_;
  TypedSpan values_;
};

using Combine = double (*)(double, double);
double add(double a, double b) { return a + b; }
double greater(double a, double b) { return std::max(a, b); }

// Contributes at once; collect() combines when all have contributed.
class ThreadSum {
 public:
  // Without `combine` the contributions stand one after the other.
  ThreadSum(ThreadWorld& world, ThreadWorld::Group& group, int rank, std::vector<double> mine,
            Combine combine)
      : world_(world), group_(group), combine_(combine) {
    const std::lock_guard lock(world_.mutex_);
    call_ = group_.calls[rank]++;
    auto& contributions = group_.open[call_].contributions;
    contributions[group.member(rank)] = std::move(mine);
    if (contributions.size() == group_.ranks.size()) group_.complete.notify_all();
  }

  Status collect(std::vector<double>& result) {
    std::unique_lock lock(world_.mutex_);
    ThreadWorld::Collective& collective = group_.open[call_];
    const auto complete = [&] { return collective.contributions.size() == group_.ranks.size(); };
    if (!ThreadWorld::wait(group_.complete, lock, complete))
      return {Code::kTimeout, "collective: a member did not come"};
    result.clear();
    for (const auto& [member, values] : collective.contributions) {
      if (combine_ == nullptr || result.empty()) {
        result.insert(result.end(), values.begin(), values.end());
        continue;
      }
      if (values.size() != result.size()) return {Code::kMismatch, "collective: members differ in size"};
      for (size_t i = 0; i < result.size(); ++i) result[i] = combine_(result[i], values[i]);
    }
    if (++collective.collected == group_.ranks.size()) group_.open.erase(call_);
    return Status::ok();
  }

 private:
  ThreadWorld& world_;
  ThreadWorld::Group& group_;
  Combine combine_;
  int64_t call_ = 0;
};

// Delivers a part of the result, as long as `values`, from `first` on.
class ThreadOperation final : public Operation {
 public:
  ThreadOperation(ThreadSum sum, size_t first, TypedSpan values)
      : sum_(sum), first_(first), values_(values) {}

  Status wait() override {
    std::vector<double> result;
    HDT_RETURN_IF_ERROR(sum_.collect(result));
    if (first_ + values_.size() > result.size())
      return {Code::kMismatch, "collective: members differ in size"};
    write(std::span(result).subspan(first_, values_.size()), values_);
    return Status::ok();
  }

 private:
  ThreadSum sum_;
  size_t first_;
  TypedSpan values_;
};

class ThreadMessenger final : public Messenger {
 public:
  ThreadMessenger(ThreadWorld& world, int rank) : world_(world), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return world_.layout_.world_size(); }

  Result<TypedMemory> allocate(NumberType type, size_t elements) override {
    return TypedMemory(type, elements,
                       {new std::byte[elements * bytes_of(type)](), std::default_delete<std::byte[]>()});
  }

  Result<Pending> send_to_stage(int stage, ConstTypedSpan values) override {
    const std::lock_guard lock(world_.mutex_);
    ThreadWorld::Queue& queue = world_.queues_[{rank_, peer(stage)}];
    queue.messages.push_back({values.type(), {values.bytes().begin(), values.bytes().end()}});
    queue.arrived.notify_one();
    return Pending(std::make_unique<Finished>());
  }

  // The buffer may be written from now on, so nobody may need what is in it.
  Result<Pending> receive_from_stage(int stage, TypedSpan values) override {
    fill_with_nan(values);
    return Pending(std::make_unique<ThreadReceive>(world_, std::pair(peer(stage), rank_), values));
  }

  Status broadcast_in_replica(int stage, std::span<int64_t> values) override {
    const Position position = world_.layout_.position_of(rank_);
    std::vector<double> mine(values.size(), 0.0);
    if (position.stage == stage) std::ranges::copy(values, mine.begin());
    HDT_RETURN_IF_ERROR(combine(world_.replica_groups_[position.replica], mine, add));
    std::ranges::transform(mine, values.begin(), [](double value) { return static_cast<int64_t>(value); });
    return Status::ok();
  }

  Result<Pending> sum_over_owners(int owner_set, TypedSpan values) override {
    return started(owner_set, values, add, 0, values);
  }

  // As long as an operation is under way, nobody may use what it writes. So nan stands there, and stays in
  // what the operation leaves unspecified.
  Result<Pending> reduce_scatter_over_owners(int owner_set, TypedSpan values,
                                             std::span<const size_t> counts) override {
    const size_t first = first_of_own(owner_set, counts);
    auto operation = started(owner_set, values, add, first, own_of(owner_set, values, counts));
    fill_with_nan(values);
    return operation;
  }

  Result<Pending> all_gather_over_owners(int owner_set, TypedSpan values,
                                         std::span<const size_t> counts) override {
    const size_t first = first_of_own(owner_set, counts);
    const TypedSpan own = own_of(owner_set, values, counts);
    auto operation = started(owner_set, own, nullptr, 0, values);
    fill_with_nan(values.subspan(0, first));
    const size_t end = first + own.size();
    fill_with_nan(values.subspan(end, values.size() - end));
    return operation;
  }

  Status sum_over_world(std::span<double> values) override { return over_world(values, add); }
  Status max_over_world(std::span<double> values) override { return over_world(values, greater); }

 private:
  int peer(int stage) const {
    return world_.layout_.rank_of({world_.layout_.position_of(rank_).replica, stage});
  }

  // Where this rank's part begins.
  size_t first_of_own(int owner_set, std::span<const size_t> counts) const {
    const size_t member = world_.group_of(owner_set).member(rank_);
    return std::accumulate(counts.begin(), counts.begin() + member, size_t{0});
  }
  TypedSpan own_of(int owner_set, TypedSpan values, std::span<const size_t> counts) const {
    return values.subspan(first_of_own(owner_set, counts), counts[world_.group_of(owner_set).member(rank_)]);
  }

  // Contributes `mine`; what comes of it from `first` on goes to `values`.
  Result<Pending> started(int owner_set, ConstTypedSpan mine, Combine how, size_t first, TypedSpan values) {
    ThreadSum sum(world_, world_.group_of(owner_set), rank_, doubles_of(mine), how);
    const std::lock_guard lock(world_.mutex_);
    if (how != nullptr) ++world_.sums_started_;
    return Pending(std::make_unique<ThreadOperation>(sum, first, values));
  }

  Status combine(ThreadWorld::Group& group, std::vector<double>& values, Combine how) {
    return ThreadSum(world_, group, rank_, values, how).collect(values);
  }

  Status over_world(std::span<double> values, Combine how) {
    std::vector<double> mine(values.begin(), values.end());
    HDT_RETURN_IF_ERROR(combine(world_.world_, mine, how));
    std::ranges::copy(mine, values.begin());
    return Status::ok();
  }

  ThreadWorld& world_;
  int rank_;
};

ThreadWorld::ThreadWorld(const Layout& layout) : layout_(layout) {
  const std::vector<OwnerSet> sets = owner_sets(layout);
  for (const OwnerSet& set : sets) owner_groups_.emplace_back().ranks = set.ranks;
  group_of_ = owner_groups(sets);
  for (int rank = 0; rank < layout.world_size(); ++rank) world_.ranks.push_back(rank);
  for (int replica = 0; replica < layout.num_replicas(); ++replica) replica_groups_.emplace_back();
  for (const int rank : world_.ranks) replica_groups_[layout.position_of(rank).replica].ranks.push_back(rank);
}

std::unique_ptr<Messenger> ThreadWorld::messenger(int rank) {
  return std::make_unique<ThreadMessenger>(*this, rank);
}

int ThreadWorld::sums_started() {
  const std::lock_guard lock(mutex_);
  return sums_started_;
}

void run_ranks(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back([&body, rank] { body(rank); });
}

}  // namespace hdt::training::testing
