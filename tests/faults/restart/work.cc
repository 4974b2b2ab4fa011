#include "tests/faults/restart/work.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <functional>
#include <random>
#include <vector>

namespace hdt::testing {

namespace {

constexpr size_t kMostBytes = size_t{8} << 20;
// One chunk, several, more than there are slots; with and without a short last one. The last ones are in
// place if they can be.
constexpr std::array<size_t, 8> kCounts = {1, 7, 1'000, 8'193, 60'001, 262'144, 700'003, 1'000'000};

struct Worker {
  hdtComm_t comm = nullptr;
  int ranks = 0;
  int rank = 0;
  int64_t* send = nullptr;
  int64_t* recv = nullptr;
  uint64_t round = 0;
  uint64_t digest = 0;

  static int64_t value(int rank, uint64_t round, size_t i) {
    return static_cast<int64_t>((static_cast<uint64_t>(rank) + 1) * 1'000'003 + round * 7'919 + i * 31);
  }
  void fill(size_t count) const {
    for (size_t i = 0; i < count; ++i) send[i] = value(rank, round, i);
  }
  int64_t sum(size_t i) const {
    int64_t sum = 0;
    for (int r = 0; r < ranks; ++r) sum += value(r, round, i);
    return sum;
  }
  std::string check(const char* what, size_t count, const std::function<int64_t(size_t)>& expected) const {
    for (size_t i = 0; i < count; ++i) {
      if (recv[i] == expected(i)) continue;
      return std::string(what) + " of " + std::to_string(count) + " in round " + std::to_string(round) +
             ": element " + std::to_string(i) + " is " + std::to_string(recv[i]) + ", not " +
             std::to_string(expected(i));
    }
    return {};
  }

  hdtResult_t allreduce(size_t count, std::string& wrong) const {
    fill(count);
    const hdtResult_t result = hdtAllReduce(send, recv, count, HDT_INT64, HDT_SUM, comm, nullptr);
    if (result == HDT_SUCCESS) wrong = check("allreduce", count, [this](size_t i) { return sum(i); });
    return result;
  }
  // Terms of very different sizes: another order of additions gives other bits.
  hdtResult_t float_sum(size_t count) {
    auto* terms = reinterpret_cast<float*>(send);
    auto* sums = reinterpret_cast<uint32_t*>(recv);
    for (size_t i = 0; i < count; ++i) {
      const auto bits = static_cast<uint64_t>(value(rank, round, i)) * 0x9E37'79B9'7F4A'7C15u;
      terms[i] = std::ldexp(static_cast<float>(bits >> 40), static_cast<int>(bits % 24));
    }
    const hdtResult_t result = hdtAllReduce(send, recv, count, HDT_FLOAT32, HDT_SUM, comm, nullptr);
    for (size_t i = 0; i < count; ++i) digest = (digest ^ sums[i]) * 0x100'0000'01B3u;
    return result;
  }
  hdtResult_t broadcast(size_t count, int root, std::string& wrong) const {
    fill(count);
    const hdtResult_t result = hdtBroadcast(send, recv, count, HDT_INT64, root, comm, nullptr);
    if (result == HDT_SUCCESS)
      wrong = check("broadcast", count, [&](size_t i) { return value(root, round, i); });
    return result;
  }
  hdtResult_t allgather(size_t count, std::string& wrong) const {
    count = std::max<size_t>(1, count / static_cast<size_t>(ranks));
    fill(count);
    const hdtResult_t result = hdtAllGather(send, recv, count, HDT_INT64, comm, nullptr);
    if (result != HDT_SUCCESS) return result;
    wrong = check("allgather", count * static_cast<size_t>(ranks),
                  [&](size_t i) { return value(static_cast<int>(i / count), round, i % count); });
    return result;
  }
  hdtResult_t reduce_scatter(size_t count, std::string& wrong) const {
    count = std::max<size_t>(1, count / static_cast<size_t>(ranks));
    fill(count * static_cast<size_t>(ranks));
    const hdtResult_t result = hdtReduceScatter(send, recv, count, HDT_INT64, HDT_SUM, comm, nullptr);
    if (result != HDT_SUCCESS) return result;
    wrong =
        check("reduce-scatter", count, [&](size_t i) { return sum(static_cast<size_t>(rank) * count + i); });
    return result;
  }
  // The sums, rank r's share of them r + 1 times as long as rank 0's, and all shares to all ranks.
  hdtResult_t by_counts(size_t count, std::string& wrong) const {
    const auto all = static_cast<size_t>(ranks);
    std::vector<size_t> starts(all + 1), counts(all);
    for (size_t r = 0; r < all; ++r) {
      starts[r + 1] = count * (r + 1) * (r + 2) / (all * (all + 1));
      counts[r] = starts[r + 1] - starts[r];
    }
    fill(count);
    int64_t* own = recv + starts[static_cast<size_t>(rank)];
    hdtResult_t result = hdtReduceScatterV(send, own, counts.data(), HDT_INT64, HDT_SUM, comm, nullptr);
    if (result == HDT_SUCCESS)
      result = hdtAllGatherV(own, recv, counts.data(), starts.data(), HDT_INT64, comm, nullptr);
    if (result == HDT_SUCCESS) wrong = check("sums by counts", count, [this](size_t i) { return sum(i); });
    return result;
  }
  // In a ring, in as many messages.
  hdtResult_t shift(size_t count, size_t messages, std::string& wrong) const {
    const int next = (rank + 1) % ranks;
    const int previous = (rank + ranks - 1) % ranks;
    const size_t part = std::max<size_t>(1, count / messages);
    fill(part * messages);
    for (size_t m = 0; m < messages; ++m) {
      const hdtResult_t result =
          hdtSendRecv(send + m * part, part, next, recv + m * part, part, previous, HDT_INT64, comm, nullptr);
      if (result != HDT_SUCCESS) return result;
    }
    wrong = check("shift", part * messages, [&](size_t i) { return value(previous, round, i); });
    return HDT_SUCCESS;
  }

  hdtResult_t step(std::mt19937_64& random, std::string& wrong) {
    const uint64_t kind = random() % 8;
    const size_t count = kCounts[random() % kCounts.size()];
    const auto root = static_cast<int>(random() % static_cast<uint64_t>(ranks));
    std::fill(recv, recv + kMostBytes / sizeof(int64_t), -1);
    switch (kind) {
      case 0:
        return allreduce(count, wrong);
      case 1:
        return broadcast(count, root, wrong);
      case 2:
        return allgather(count, wrong);
      case 3:
        return reduce_scatter(count, wrong);
      case 4:
        return shift(count, 1, wrong);
      case 5:
        return float_sum(count);
      case 6:
        return by_counts(count, wrong);
      default:
        return shift(std::min<size_t>(count, 10'000), 1 + random() % 40, wrong);
    }
  }
};

}  // namespace

hdtResult_t work(hdtComm_t comm, uint64_t seed, const std::string& stop, bool in_place, uint64_t rounds,
                 std::string& extra) {
  std::mt19937_64 random(seed);
  Worker worker;
  worker.comm = comm;
  hdtCommCount(comm, &worker.ranks);
  hdtCommUserRank(comm, &worker.rank);
  std::vector<int64_t> ordinary(in_place ? 0 : 2 * kMostBytes / sizeof(int64_t));
  void* shared[2] = {ordinary.data(), ordinary.data() + ordinary.size() / 2};
  for (void*& memory : shared) {
    if (in_place && hdtMemAlloc(&memory, kMostBytes) != HDT_SUCCESS) return HDT_ERR_SYSTEM;
  }
  worker.send = static_cast<int64_t*>(shared[0]);
  worker.recv = static_cast<int64_t*>(shared[1]);
  hdtResult_t result = HDT_SUCCESS;
  for (int64_t ends = 0; result == HDT_SUCCESS && ends == 0; ++worker.round) {
    std::string wrong;
    result = worker.step(random, wrong);
    if (!wrong.empty()) {
      extra = wrong;
      result = HDT_ERR_INTERNAL;
    }
    ends = rounds != 0 ? worker.round + 1 == rounds : worker.rank == 0 && std::filesystem::exists(stop);
    if (result == HDT_SUCCESS) result = hdtAllReduce(&ends, &ends, 1, HDT_INT64, HDT_MAX, comm, nullptr);
  }
  if (result == HDT_SUCCESS) extra = std::to_string(worker.round) + " " + std::to_string(worker.digest);
  for (void* memory : shared) {
    if (in_place) hdtMemFree(memory);
  }
  return result;
}

}  // namespace hdt::testing
