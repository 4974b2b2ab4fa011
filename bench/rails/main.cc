// main.cc: hdt-bench-rails, one of two ranks that exchange for some time, compare every result bit for bit and tell when
// each operation began and ended. In memory of hdtMemAlloc; with "both" operations and kinds of memory take turns,
// with "stream" the same bytes go each way all the time, untimed. For bench/striping, bench/failover and the fault tests of rails.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "hdt/hdt.h"

namespace {

constexpr long kMostSeconds = 600;
constexpr long kMostMebibytes = 1024;

enum class Kind { kAllReduce, kSendRecv };

int wrong_usage(const char* what) {
  std::fprintf(
      stderr,
      "hdt-bench-rails: %s; expected: hdt-bench-rails allreduce|sendrecv|both|stream SECONDS KIB [CLASS]\n",
      what);
  return 2;
}

bool succeeded(hdtResult_t result, const char* what) {
  if (result == HDT_SUCCESS) return true;
  std::fprintf(stderr, "hdt-bench-rails: %s: %s\n", what, hdtGetLastError());
  return false;
}

// Small whole numbers: their sums are exact, so that results can be compared bit for bit.
void fill(std::span<float> data, long call, int rank, bool last) {
  uint32_t value = static_cast<uint32_t>(call) * 2654435761U + static_cast<uint32_t>(rank) * 40503U;
  for (float& element : data) {
    element = static_cast<float>(value >> 12 & 0xfff);
    value += 0x9e3779b9U;
  }
  data.front() = last ? 1.0F : 0.0F;
}

struct Timing {
  int64_t begin_ns;
  int64_t end_ns;
};

struct Buffers {
  std::span<float> mine, result;
};

// Memory of hdtMemAlloc, which is never given back.
std::span<float> shared_memory(size_t count) {
  void* memory = nullptr;
  if (!succeeded(hdtMemAlloc(&memory, count * sizeof(float)), "hdtMemAlloc")) std::exit(1);
  return {static_cast<float*>(memory), count};
}

class Exchange {
 public:
  Exchange(hdtComm_t group, int rank, size_t count)
      : group_(group),
        rank_(rank),
        shared_{shared_memory(count), shared_memory(count)},
        mine_(count),
        result_(count),
        theirs_(count) {}

  // False: it failed. `last`: this rank wants to end; afterwards whether either does.
  bool run(Kind kind, bool ordinary_memory, long call, bool& last) {
    const Buffers buffers = ordinary_memory ? Buffers{mine_, result_} : shared_;
    fill(buffers.mine, call, rank_, last);
    fill(theirs_, call, 1 - rank_, false);
    // What is timed is the exchange, not how long one rank prepares longer than the other.
    if (!succeeded(hdtBarrier(group_, nullptr), "hdtBarrier")) return false;
    const int64_t begin = hdt::now_ns();
    const bool right = kind == Kind::kAllReduce ? all_reduce(buffers) : send_recv(buffers);
    if (!right) return false;
    timings.push_back({begin, hdt::now_ns()});
    const bool either = buffers.result.front() != 0.0F || last;
    if (kind == Kind::kAllReduce) {
      for (size_t i = 1; i < theirs_.size(); ++i) theirs_[i] += buffers.mine[i];
    }
    if (!matches(buffers)) ++wrong;
    last = either;
    return true;
  }

  // The same bytes each way once more, as soon as the last ones have gone, compared at the end only: a load that leaves the processors
  // to others. Like run().
  bool stream(long call, bool& last) {
    if (call == 0) {
      fill(shared_.mine, 0, rank_, false);
      fill(theirs_, 0, 1 - rank_, false);
    }
    shared_.mine.front() = last ? 1.0F : 0.0F;
    if (!send_recv(shared_)) return false;
    last = last || shared_.result.front() != 0.0F;
    if (last && !matches(shared_)) ++wrong;
    return true;
  }

  std::vector<Timing> timings;
  long wrong = 0;

 private:
  // The first element says who wants to end; the others are what is compared.
  bool matches(const Buffers& buffers) const {
    const size_t bytes = (theirs_.size() - 1) * sizeof(float);
    return std::memcmp(buffers.result.data() + 1, theirs_.data() + 1, bytes) == 0;
  }
  bool all_reduce(const Buffers& buffers) {
    return succeeded(hdtAllReduce(buffers.mine.data(), buffers.result.data(), buffers.mine.size(),
                                  HDT_FLOAT32, HDT_SUM, group_, nullptr),
                     "hdtAllReduce");
  }
  bool send_recv(const Buffers& buffers) {
    hdtRequest_t sending = nullptr;
    hdtRequest_t receiving = nullptr;
    const int peer = 1 - rank_;
    return succeeded(hdtSend(buffers.mine.data(), buffers.mine.size(), HDT_FLOAT32, peer, group_, &sending),
                     "hdtSend") &&
           succeeded(
               hdtRecv(buffers.result.data(), buffers.result.size(), HDT_FLOAT32, peer, group_, &receiving),
               "hdtRecv") &&
           succeeded(hdtWait(&sending, -1), "hdtWait") && succeeded(hdtWait(&receiving, -1), "hdtWait");
  }

  hdtComm_t group_;
  int rank_;
  Buffers shared_;
  std::vector<float> mine_, result_;
  std::vector<float> theirs_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return wrong_usage("wrong number of arguments");
  const std::string kind = argv[1];
  if (kind != "allreduce" && kind != "sendrecv" && kind != "both" && kind != "stream")
    return wrong_usage("unknown operation");
  char* end = nullptr;
  const double seconds = std::strtod(argv[2], &end);
  if (*end != 0 || !(seconds > 0 && seconds <= kMostSeconds))
    return wrong_usage("SECONDS is no number up to 600");
  const long kib = std::strtol(argv[3], &end, 10);
  if (*end != 0 || kib < 1 || kib > kMostMebibytes * 1024)
    return wrong_usage("KIB is no number from 1 to 1048576");

  hdtComm_t group = nullptr;
  int rank = 0;
  int size = 0;
  hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
  if (argc == 5) config.group_class = argv[4];
  if (!succeeded(hdtCommInit(&group, &config), "joining the group") ||
      !succeeded(hdtCommUserRank(group, &rank), "hdtCommUserRank") ||
      !succeeded(hdtCommCount(group, &size), "hdtCommCount")) {
    return 1;
  }
  if (size != 2) return wrong_usage("the job has not two ranks");
  std::puts("ready");
  std::fflush(stdout);
  Exchange exchange(group, rank, static_cast<size_t>(kib) * 1024 / sizeof(float));
  const hdt::Deadline until = hdt::Deadline::after_ns(static_cast<int64_t>(seconds * hdt::kNsPerSecond));
  bool right = true;
  long call = 0;
  for (bool last = false; right && !last; ++call) {
    last = until.expired();
    if (kind == "stream") {
      right = exchange.stream(call, last);
      continue;
    }
    const bool reduce = kind == "allreduce" || (kind == "both" && call % 2 == 0);
    const bool ordinary_memory = kind == "both" && call % 4 >= 2;
    right = exchange.run(reduce ? Kind::kAllReduce : Kind::kSendRecv, ordinary_memory, call, last);
  }
  for (const Timing& timing : exchange.timings) {
    std::printf("op %lld %lld\n", static_cast<long long>(timing.begin_ns),
                static_cast<long long>(timing.end_ns));
  }
  std::printf("%s %ld wrong %ld\n", right ? "done" : "failed", call, exchange.wrong);
  hdtCommDestroy(group);
  return right && exchange.wrong == 0 ? 0 : 1;
}
