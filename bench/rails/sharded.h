// sharded.h: what a program with sharded parameters does between its nodes in each step: gradients are
// reduce-scattered to the ranks that hold the parameters, and the parameters are gathered from them. Every
// rank holds as many, or as many as hdtSuggestCounts says. Every result is compared.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/clock.h"
#include "bench/rails/buffers.h"

namespace hdt::rails {

// Begin and end of one operation, by the monotonic clock, which a script on the machine can compare with its
// own.
struct Timing {
  int64_t begin_ns;
  int64_t end_ns;
};

// One rank's side of it, with `count` elements in all. Used by one thread.
class Sharded {
 public:
  Sharded(hdtComm_t group, int rank, int ranks, size_t count)
      : group_(group),
        rank_(rank),
        ranks_(ranks),
        counts_(static_cast<size_t>(ranks)),
        starts_(static_cast<size_t>(ranks)),
        shared_(shared_buffers(count)),
        shard_(shared_buffers(count)),
        theirs_(count),
        sums_(count),
        all_(count) {}

  // Chooses the counts, to be called before run(). False: it has failed.
  bool choose(bool suggested) {
    if (suggested) {
      if (!succeeded(hdtSuggestCounts(group_, all_.size(), HDT_FLOAT32, counts_.data()), "hdtSuggestCounts"))
        return false;
    } else {
      const size_t each = all_.size() / counts_.size();
      std::fill(counts_.begin(), counts_.end(), each);
      counts_.front() += all_.size() % counts_.size();
    }
    std::exclusive_scan(counts_.begin(), counts_.end(), starts_.begin(), size_t{0});
    return true;
  }

  // Runs one operation after the other until this rank or another one wants to end. False: one has failed.
  bool run(const Deadline& until) {
    for (int32_t last = 0; last == 0; ++calls) {
      last = until.expired() ? 1 : 0;
      if (!succeeded(hdtAllReduce(&last, &last, 1, HDT_INT32, HDT_MAX, group_, nullptr), "hdtAllReduce") ||
          !run_once(calls)) {
        return false;
      }
    }
    return true;
  }

  std::vector<Timing> timings;
  long calls = 0;
  long wrong = 0;
  const std::vector<size_t>& counts() const { return counts_; }

 private:
  bool run_once(long call) {
    prepare(call);
    const std::span<float> own = block(shard_.mine, rank_);
    const std::span<float> sum = block(shard_.result, rank_);
    if (!succeeded(hdtBarrier(group_, nullptr), "hdtBarrier")) return false;
    const int64_t begin = now_ns();
    if (!succeeded(hdtReduceScatterV(shared_.mine.data(), sum.data(), counts_.data(), HDT_FLOAT32, HDT_SUM,
                                     group_, nullptr),
                   "hdtReduceScatterV") ||
        !succeeded(hdtAllGatherV(own.data(), shared_.result.data(), counts_.data(), starts_.data(),
                                 HDT_FLOAT32, group_, nullptr),
                   "hdtAllGatherV") ||
        // The step is over when every rank has everything.
        !succeeded(hdtBarrier(group_, nullptr), "hdtBarrier")) {
      return false;
    }
    timings.push_back({begin, now_ns()});
    const auto same = [](std::span<const float> a, std::span<const float> b) {
      return std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
    };
    if (!same(sum, block(sums_, rank_)) || !same(shared_.result, all_)) ++wrong;
    return true;
  }

  // Rank r contributes its data to the sums, and holds its own block of it.
  void prepare(long call) {
    std::fill(sums_.begin(), sums_.end(), 0.0F);
    std::fill(shared_.result.begin(), shared_.result.end(), -1.0F);
    for (int rank = 0; rank < ranks_; ++rank) {
      fill(theirs_, call, rank, false);
      for (size_t i = 0; i < sums_.size(); ++i) sums_[i] += theirs_[i];
      std::ranges::copy(block(theirs_, rank), block(all_, rank).begin());
      if (rank != rank_) continue;
      std::ranges::copy(theirs_, shared_.mine.begin());
      std::ranges::copy(theirs_, shard_.mine.begin());
    }
  }
  // The block of a rank in data of all ranks.
  std::span<float> block(std::span<float> whole, int rank) const {
    return whole.subspan(starts_[static_cast<size_t>(rank)], counts_[static_cast<size_t>(rank)]);
  }

  hdtComm_t group_;
  int rank_, ranks_;
  std::vector<size_t> counts_, starts_;
  // The contribution, and what is gathered; and in the block of this rank the shard, and its sums.
  Buffers shared_, shard_;
  // One rank's data; what the sums are to be, and what is to be gathered.
  std::vector<float> theirs_, sums_, all_;
};

}  // namespace hdt::rails
