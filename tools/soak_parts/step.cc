// step.cc: the operations of a step. A rank's contribution follows from seed, group, step, call and
// rank (values.h), so each rank can compute what every result must be.
#include "tools/soak_parts/step.h"

#include <cstdio>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/clock.h"
#include "tools/soak_parts/values.h"

namespace hdt::soak {

namespace {

// Sizes in bytes.
constexpr size_t kAreaBytes = size_t{4} << 20;
constexpr size_t kSmall = 16 << 10;
constexpr size_t kActivations = 96 << 10;
constexpr size_t kBuckets[] = {512 << 10, 64 << 10, 256 << 10};
constexpr size_t kShard = 64 << 10;
constexpr uint64_t kEvery = 4;  // steps: how often all ranks exchange more than whether to stop
constexpr hdtDataType_t kTypes[] = {HDT_FLOAT32, HDT_BFLOAT16, HDT_INT32, HDT_FLOAT64};

// Groups as keys of values know them.
// Two groups of a rank never have the same key for a call.
constexpr uint64_t kNode = 1, kAcross = 2, kForward = 3, kBackward = 4, kAll = 5;

}  // namespace

Step::Step(Groups& groups, uint64_t seed) : groups_(groups), seed_(seed), plain_(2 * kAreas * kAreaBytes) {
  void* memory = nullptr;
  if (hdtMemAlloc(&memory, 2 * kAreas * kAreaBytes) == HDT_SUCCESS) shared_ = static_cast<std::byte*>(memory);
}

Step::~Step() {
  if (shared_ != nullptr) hdtMemFree(shared_);
}

// A step has fewer than 256 calls.
uint64_t Step::key(uint64_t group, int rank, uint64_t call) const {
  return key_of(seed_, group, number_ << 8 | call, static_cast<uint64_t>(rank));
}

std::vector<uint64_t> Step::keys(uint64_t group, const std::vector<int>& ranks, uint64_t call) const {
  std::vector<uint64_t> all;
  for (const int rank : ranks) all.push_back(key(group, rank, call));
  return all;
}

// A little less than `size` bytes, so that buffers end at odd places.
size_t Step::count_of(size_t size, hdtDataType_t type) const {
  return size / hdtTypeSize(type) - key_of(seed_, 0, number_, size) % 64;
}

bool Step::failed(const std::string& name, hdtResult_t result) {
  failed_in = name;
  failure = result;
  failure_text = hdtGetLastError();
  for (Call& call : calls_) {
    if (call.request != nullptr) hdtWait(&call.request, -1);
  }
  calls_.clear();
  return false;
}

bool Step::issue(const std::string& name, size_t size, const Start& start, std::function<bool()> right) {
  calls_.push_back({name, size, nullptr, now_ns(), std::move(right)});
  const hdtResult_t result = start(&calls_.back().request);
  return result == HDT_SUCCESS || failed(name, result);
}

// First all calls are waited for, so that comparing does not lengthen the times.
bool Step::finish_all() {
  for (Call& call : calls_) {
    if (const hdtResult_t result = hdtWait(&call.request, -1); result != HDT_SUCCESS)
      return failed(call.name, result);
    pauses_.add(call.name, call.begin_ns, now_ns());
  }
  for (const Call& call : calls_) {
    ++operations;
    bytes += call.bytes;
    if (call.right()) continue;
    ++wrong;
    std::printf("wrong %llu %s\n", static_cast<unsigned long long>(number_), call.name.c_str());
  }
  calls_.clear();
  return true;
}

bool Step::one(const std::string& name, size_t size, const Start& start, std::function<bool()> right) {
  return issue(name, size, start, std::move(right)) && finish_all();
}

// As tensor parallelism: small sums, one after the other.
bool Step::within_node() {
  const hdtDataType_t type = kTypes[number_ % 4];
  const size_t count = count_of(kSmall, type);
  for (uint64_t call = 0; call < 2; ++call) {
    const Area area = areas_[call];
    fill(area.in, type, count, key(kNode, groups_.rank, call));
    const bool right = one(
        "tp allreduce", count * hdtTypeSize(type),
        [&](hdtRequest_t* request) {
          return hdtAllReduce(area.in, area.out, count, type, HDT_SUM, groups_.node, request);
        },
        [&] { return is_sum(area.out, type, 0, count, keys(kNode, groups_.node_ranks, call)); });
    if (!right) return false;
  }
  return true;
}

// As pipeline parallelism: two micro-batches from each rank to its neighbour, all under way at once. The
// receiver compares.
bool Step::along_pipeline(bool forward) {
  const size_t count = count_of(kActivations, HDT_BFLOAT16);
  const size_t size = count * sizeof(uint16_t);
  const uint64_t group = forward ? kForward : kBackward;
  const int to = groups_.rank + (forward ? 1 : -1);
  const int from = groups_.rank - (forward ? 1 : -1);
  const auto exists = [this](int rank) { return rank >= 0 && rank < groups_.size; };
  for (uint64_t batch = 0; batch < 2; ++batch) {
    const Area area = areas_[batch];
    if (exists(from) && !issue(
                            "pp recv", size,
                            [&](hdtRequest_t* request) {
                              return hdtRecv(area.out, count, HDT_BFLOAT16, from, groups_.pipeline, request);
                            },
                            [this, area, count, group, from, batch] {
                              return is_sum(area.out, HDT_BFLOAT16, 0, count, keys(group, {from}, batch));
                            })) {
      return false;
    }
    fill(area.in, HDT_BFLOAT16, count, key(group, groups_.rank, batch));
    if (exists(to) && !issue(
                          "pp send", size,
                          [&](hdtRequest_t* request) {
                            return hdtSend(area.in, count, HDT_BFLOAT16, to, groups_.pipeline, request);
                          },
                          // Its receiver compares.
                          [] { return true; })) {
      return false;
    }
  }
  return finish_all();
}

// As data parallelism: three buckets summed at the same time; then a reduce-scatter and an allgather, as
// sharded optimizers make them.
bool Step::across_replicas() {
  const std::vector<int>& ranks = groups_.across_ranks;
  const auto size = ranks.size();
  size_t place = 0;
  while (ranks[place] != groups_.rank) ++place;
  for (uint64_t call = 0; call < std::size(kBuckets); ++call) {
    const hdtDataType_t type = kTypes[(number_ + call) % 4];
    const size_t count = count_of(kBuckets[call], type);
    const Area area = areas_[call];
    fill(area.in, type, count, key(kAcross, groups_.rank, call));
    const std::string name = "dp allreduce of " + std::to_string(kBuckets[call] >> 10) + " KiB";
    const bool issued = issue(
        name, count * hdtTypeSize(type),
        [&](hdtRequest_t* request) {
          return hdtAllReduce(area.in, area.out, count, type, HDT_SUM, groups_.across, request);
        },
        [this, area, type, count, call] {
          return is_sum(area.out, type, 0, count, keys(kAcross, groups_.across_ranks, call));
        });
    if (!issued) return false;
  }
  if (!finish_all()) return false;
  const size_t count = count_of(kShard, HDT_FLOAT32);
  const Area area = areas_[3];
  fill(area.in, HDT_FLOAT32, count * size, key(kAcross, groups_.rank, 8));
  const bool scattered = one(
      "dp reduce-scatter", count * size * sizeof(float),
      [&](hdtRequest_t* request) {
        return hdtReduceScatter(area.in, area.out, count, HDT_FLOAT32, HDT_SUM, groups_.across, request);
      },
      [&] { return is_sum(area.out, HDT_FLOAT32, place * count, count, keys(kAcross, ranks, 8)); });
  if (!scattered) return false;
  fill(area.in, HDT_FLOAT32, count, key(kAcross, groups_.rank, 9));
  return one(
      "dp allgather", count * size * sizeof(float),
      [&](hdtRequest_t* request) {
        return hdtAllGather(area.in, area.out, count, HDT_FLOAT32, groups_.across, request);
      },
      [&] {
        bool right = true;
        for (size_t i = 0; i < size; ++i) {
          right = right && is_sum(area.out + i * count * sizeof(float), HDT_FLOAT32, 0, count,
                                  keys(kAcross, {ranks[i]}, 9));
        }
        return right;
      });
}

// Rooted and all-to-all exchanges, with the root moving on from step to step.
bool Step::among_all() {
  const int root = static_cast<int>(number_ / kEvery % static_cast<uint64_t>(groups_.size));
  const size_t count = count_of(kShard, HDT_INT32);
  const Area area = areas_[0];
  fill(area.in, HDT_INT32, count, key(kAll, groups_.rank, 0));
  const bool sent = one(
      "broadcast", count * sizeof(int32_t),
      [&](hdtRequest_t* request) {
        return hdtBroadcast(area.in, area.out, count, HDT_INT32, root, groups_.all, request);
      },
      [&] { return is_sum(area.out, HDT_INT32, 0, count, keys(kAll, {root}, 0)); });
  if (!sent) return false;
  const auto size = static_cast<size_t>(groups_.size);
  fill(area.in, HDT_INT32, count * size, key(kAll, groups_.rank, 1));
  return one(
      "alltoall", count * size * sizeof(int32_t),
      [&](hdtRequest_t* request) {
        return hdtAllToAll(area.in, area.out, count, HDT_INT32, groups_.all, request);
      },
      [&] {
        bool right = true;
        for (int other = 0; other < groups_.size; ++other) {
          const std::byte* place = area.out + static_cast<size_t>(other) * count * sizeof(int32_t);
          right = right && is_sum(place, HDT_INT32, static_cast<size_t>(groups_.rank) * count, count,
                                  keys(kAll, {other}, 1));
        }
        return right;
      });
}

// The sum of the wishes says whether any rank wants to pause, and is the same on all ranks. The sum of
// the step numbers shows whether all ranks are in the same step.
bool Step::agree(bool& stop) {
  int64_t votes[2] = {stop ? 1 : 0, static_cast<int64_t>(number_)};
  int64_t sums[2] = {0, 0};
  const bool ended = one(
      "agreement", sizeof votes,
      [&](hdtRequest_t* request) {
        return hdtAllReduce(votes, sums, 2, HDT_INT64, HDT_SUM, groups_.all, request);
      },
      [&] {
        return sums[1] == static_cast<int64_t>(number_) * groups_.size && sums[0] >= 0 &&
               sums[0] <= groups_.size;
      });
  stop = sums[0] > 0;
  return ended;
}

bool Step::run(uint64_t number, bool& stop) {
  number_ = number;
  // Memory of hdtMemAlloc is used in place, and other memory is copied; steps use them in turn.
  std::byte* memory = shared_ != nullptr && number % 2 == 0 ? shared_ : plain_.data();
  areas_.clear();
  for (size_t i = 0; i < kAreas; ++i)
    areas_.push_back({memory + 2 * i * kAreaBytes, memory + (2 * i + 1) * kAreaBytes});
  return within_node() && along_pipeline(true) && along_pipeline(false) && across_replicas() &&
         (number % kEvery != 0 || among_all()) && agree(stop);
}

}  // namespace hdt::soak
