// main.cc: hdt-bench-rails, one of two ranks that exchange data for some time, compare every result bit for
// bit, and print when each operation began and ended. The data is in memory of hdtMemAlloc. With "both",
// operations and kinds of memory take turns; with "stream" the same bytes go in both directions all the time,
// untimed. With "sharded" and "suggested" it is one of any number of ranks that reduce-scatter and gather,
// with equal counts and with those of hdtSuggestCounts; "allreduce" takes any number, too, and ends in order
// after SIGTERM to one rank. bench/striping, bench/failover, bench/unequal and the fault tests of rails use
// it.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/clock.h"
#include "bench/rails/buffers.h"
#include "bench/rails/sharded.h"
#include "bench/rails/stream.h"
#include "hdt/hdt.h"

namespace {

using hdt::rails::Buffers;
using hdt::rails::fill;
using hdt::rails::matches;
using hdt::rails::SendRecv;
using hdt::rails::Sharded;
using hdt::rails::shared_buffers;
using hdt::rails::Stream;
using hdt::rails::succeeded;
using hdt::rails::Timing;

constexpr long kMostSeconds = 600;
constexpr long kMostMebibytes = 1024;

enum class Kind { kAllReduce, kSendRecv };

int wrong_usage(const char* what) {
  std::fprintf(stderr,
               "hdt-bench-rails: %s; expected: hdt-bench-rails "
               "allreduce|sendrecv|both|stream|sharded|suggested SECONDS KIB [CLASS]\n",
               what);
  return 2;
}

// Set by SIGTERM: this rank wants to end before its time.
volatile std::sig_atomic_t asked_to_end = 0;

// Makes one operation after the other, and verifies each.
class Exchange {
 public:
  Exchange(hdtComm_t group, int rank, int size, size_t count)
      : group_(group),
        rank_(rank),
        size_(size),
        shared_(shared_buffers(count)),
        mine_(count),
        result_(count),
        theirs_(count),
        expected_(count) {}

  // Runs one operation. `last` in: this rank wants to end; out: any rank does. False: it has failed.
  bool run(Kind kind, bool ordinary_memory, long call, bool& last) {
    const Buffers buffers = ordinary_memory ? Buffers{mine_, result_} : shared_;
    fill(buffers.mine, call, rank_, last);
    // The other ranks' data, which this rank can compute. An allreduce has the sum of all; of a sendrecv the
    // expected result is the other rank's data.
    std::ranges::fill(expected_, 0.0F);
    for (int rank = 0; rank < size_; ++rank) {
      if (rank == rank_ && kind != Kind::kAllReduce) continue;
      fill(theirs_, call, rank, false);
      for (size_t i = 0; i < expected_.size(); ++i) expected_[i] += theirs_[i];
    }
    // The exchange is timed, and not how much longer one rank prepares than the other.
    if (!succeeded(hdtBarrier(group_, nullptr), "hdtBarrier")) return false;
    const int64_t begin = hdt::now_ns();
    const bool right = kind == Kind::kAllReduce ? all_reduce(buffers) : send_recv(buffers);
    if (!right) return false;
    timings.push_back({begin, hdt::now_ns()});
    // The sum, or the received element, is not 0 if another rank wants to end.
    last = buffers.result.front() != 0.0F || last;
    if (!matches(buffers.result, expected_)) ++wrong;
    return true;
  }

  std::vector<Timing> timings;
  long wrong = 0;

 private:
  bool all_reduce(const Buffers& buffers) {
    return succeeded(hdtAllReduce(buffers.mine.data(), buffers.result.data(), buffers.mine.size(),
                                  HDT_FLOAT32, HDT_SUM, group_, nullptr),
                     "hdtAllReduce");
  }
  bool send_recv(const Buffers& buffers) {
    SendRecv exchange;
    return exchange.begin(buffers, 1 - rank_, group_) && exchange.wait();
  }

  hdtComm_t group_;
  int rank_;
  int size_;
  Buffers shared_;
  std::vector<float> mine_, result_;
  // another rank's data, and what the result must be
  std::vector<float> theirs_, expected_;
};

void say_ready() {
  std::puts("ready");
  std::fflush(stdout);
}

void print(const std::vector<Timing>& timings) {
  for (const Timing& timing : timings) {
    std::printf("op %lld %lld\n", static_cast<long long>(timing.begin_ns),
                static_cast<long long>(timing.end_ns));
  }
}

// The last line, and the exit code.
int report(bool right, long calls, long wrong, hdtComm_t group) {
  std::printf("%s %ld wrong %ld\n", right ? "done" : "failed", calls, wrong);
  hdtCommDestroy(group);
  return right && wrong == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return wrong_usage("wrong number of arguments");
  const std::string kind = argv[1];
  const bool sharded = kind == "sharded" || kind == "suggested";
  if (kind != "allreduce" && kind != "sendrecv" && kind != "both" && kind != "stream" && !sharded)
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
  if (size != 2 && kind != "allreduce" && !sharded) return wrong_usage("the job has not two ranks");
  const size_t count = static_cast<size_t>(kib) * 1024 / sizeof(float);
  const int64_t run_ns = static_cast<int64_t>(seconds * hdt::kNsPerSecond);
  if (sharded) {
    Sharded steps(group, rank, size, count);
    if (!steps.choose(kind == "suggested")) return 1;
    say_ready();
    const bool right = steps.run(hdt::Deadline::after_ns(run_ns));
    for (const size_t each : steps.counts()) std::printf("count %zu\n", each);
    print(steps.timings);
    return report(right, steps.calls, steps.wrong, group);
  }
  if (kind == "stream") {
    Stream stream(group, rank, count);
    say_ready();
    const bool right = stream.run(hdt::Deadline::after_ns(run_ns));
    return report(right, stream.calls, stream.wrong, group);
  }
  Exchange exchange(group, rank, size, count);
  std::signal(SIGTERM, [](int) { asked_to_end = 1; });
  say_ready();
  const hdt::Deadline until = hdt::Deadline::after_ns(run_ns);
  bool right = true;
  long call = 0;
  // "both" changes the operation with every call, and the memory with every second one.
  for (bool last = false; right && !last; ++call) {
    last = until.expired() || asked_to_end != 0;
    const bool reduce = kind == "allreduce" || (kind == "both" && call % 2 == 0);
    const bool ordinary_memory = kind == "both" && call % 4 >= 2;
    right = exchange.run(reduce ? Kind::kAllReduce : Kind::kSendRecv, ordinary_memory, call, last);
  }
  // Printed in the end, so that printing is in no operation's time.
  print(exchange.timings);
  return report(right, call, exchange.wrong, group);
}
