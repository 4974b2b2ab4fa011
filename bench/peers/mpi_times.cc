// mpi_times.cc: times the collectives of an MPI as hdt-commbench times those of HDT, for bench/compare. It
// needs nothing but MPI, so that it can be built by any MPI's own compiler, in another Debian, too.
//
// Iterations follow one another without a barrier; the time of one is that of its slowest rank. Memory is
// ordinary, all calls are out of place on float32, and the results of the last iteration are verified.
// Exit code 0: measured, 1: a wrong result, 2: wrong usage. An error of MPI ends the job.
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr const char* kUsage =
    "Usage: mpi_times [--apart] COLLECTIVE:BYTES:WARM_UP:ITERATIONS...\n"
    "Prints the version, then for each the median time of a call, each as a line of JSON. Bytes are those\n"
    "of the full buffer. COLLECTIVE is allreduce, reduce_scatter or allgather. A collective that takes long\n"
    "has fewer iterations. --apart: each rank is an emulated node, with cores of its own where there are "
    "enough.\n";
constexpr size_t kPage = 4096;
// Ranks that wait without giving up their core, where there are more ranks than cores, need a time slice for
// each call. So a size gets fewer iterations where these would take longer than so.
constexpr double kLimitUs = 1e5;
constexpr int kFewest = 5;
constexpr int kFirstCalls = 3;

struct Work {
  std::string collective;
  size_t bytes = 0;
  int warm_up = 0;
  int iterations = 0;
};

template <class Number>
bool take_number(const std::string& text, size_t& from, Number& number) {
  if (from >= text.size() || text[from] != ':') return false;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + from + 1, end, number);
  from = static_cast<size_t>(rest - text.data());
  return error == std::errc();
}

// False if the text is no work for so many ranks.
bool parse(const std::string& text, int ranks, Work& work) {
  size_t at = text.find(':');
  if (at == std::string::npos) return false;
  work.collective = text.substr(0, at);
  const bool known =
      work.collective == "allreduce" || work.collective == "reduce_scatter" || work.collective == "allgather";
  const bool numbers = take_number(text, at, work.bytes) && take_number(text, at, work.warm_up) &&
                       take_number(text, at, work.iterations) && at == text.size();
  // Counts of MPI are ints, and all ranks have parts of one size.
  return known && numbers && work.iterations > 0 && work.warm_up >= 0 && work.bytes > 0 &&
         work.bytes <= size_t{1} << 32 && work.bytes % (sizeof(float) * static_cast<size_t>(ranks)) == 0;
}

// Every partial sum is a whole number that a float holds, so the order of additions does not matter.
float value_of(int rank, size_t index) {
  return static_cast<float>((index + static_cast<size_t>(rank) * 7) % 61);
}

class Measurement {
 public:
  Measurement(Work work, int rank, int ranks, float* send, float* recv)
      : work_(std::move(work)), rank_(rank), ranks_(ranks), send_(send), recv_(recv) {
    const size_t whole = work_.bytes / sizeof(float);
    const size_t part = whole / static_cast<size_t>(ranks);
    count_ = static_cast<int>(work_.collective == "allreduce" ? whole : part);
    send_elements_ = work_.collective == "allgather" ? part : whole;
    recv_elements_ = work_.collective == "reduce_scatter" ? part : whole;
  }

  // The median over the iterations of the slowest rank's time in microseconds; on rank 0.
  double time() {
    load();
    const double most = std::max<double>(kFewest, kLimitUs / first_calls_us());
    const int warm_up = static_cast<int>(std::min<double>(work_.warm_up, most));
    const int iterations = static_cast<int>(std::min<double>(work_.iterations, most));
    for (int i = 0; i < warm_up; ++i) call();
    load();  // what the warm-up has written cannot pass for a result
    MPI_Barrier(MPI_COMM_WORLD);
    std::vector<double> times(static_cast<size_t>(iterations));
    for (double& time : times) time = timed_call_us();
    std::vector<double> slowest(times.size());
    MPI_Reduce(times.data(), slowest.data(), iterations, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    // The nearest-rank percentile, as hdt-commbench has it.
    const auto middle = slowest.begin() + (iterations - 1) / 2;
    std::nth_element(slowest.begin(), middle, slowest.end());
    return *middle;
  }

  // Whether the last call's result is right on all ranks; on all ranks.
  bool is_right() const {
    int right = 1;
    for (size_t i = 0; i < recv_elements_; ++i) right &= static_cast<int>(recv_[i] == expected(i));
    int everywhere = 0;
    MPI_Allreduce(&right, &everywhere, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return everywhere == 1;
  }

 private:
  void load() {
    for (size_t i = 0; i < send_elements_; ++i) send_[i] = value_of(rank_, i);
    std::fill_n(recv_, recv_elements_, -1.0F);
  }

  double timed_call_us() {
    const auto start = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  }

  // What a call takes about, the same on all ranks. The very first one connects.
  double first_calls_us() {
    call();
    double least = timed_call_us();
    for (int i = 1; i < kFirstCalls; ++i) least = std::min(least, timed_call_us());
    double slowest = 0;
    MPI_Allreduce(&least, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return std::max(slowest, 0.01);
  }

  void call() {
    if (work_.collective == "allreduce") {
      MPI_Allreduce(send_, recv_, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else if (work_.collective == "reduce_scatter") {
      MPI_Reduce_scatter_block(send_, recv_, count_, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    } else {
      // Data that is only moved goes as bytes.
      const int bytes = count_ * static_cast<int>(sizeof(float));
      MPI_Allgather(send_, bytes, MPI_BYTE, recv_, bytes, MPI_BYTE, MPI_COMM_WORLD);
    }
  }

  float expected(size_t index) const {
    const auto part = static_cast<size_t>(count_);
    if (work_.collective == "allgather") return value_of(static_cast<int>(index / part), index % part);
    if (work_.collective == "reduce_scatter") index += static_cast<size_t>(rank_) * part;
    float sum = 0;
    for (int rank = 0; rank < ranks_; ++rank) sum += value_of(rank, index);
    return sum;
  }

  Work work_;
  int rank_;
  int ranks_;
  float* send_;
  float* recv_;
  int count_ = 0;
  size_t send_elements_ = 0;
  size_t recv_elements_ = 0;
};

// The first words of the library's own name: some MPIs describe all of their configuration.
std::string version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string whole(text, static_cast<size_t>(length));
  whole = whole.substr(0, whole.find_first_of(",\n"));
  std::string words;
  for (const char letter : whole) {
    const bool blank = letter == '\t' || letter == ' ';
    if (!blank) words += letter;
    if (blank && !words.empty() && words.back() != ' ') words += ' ';
  }
  return words;
}

// As hdt-commbench keeps emulated nodes apart: all have the same number of cores, the rest stays unused.
void keep_to_own_cores(int rank, int ranks) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  const int each = CPU_COUNT(&all) / ranks;
  if (each == 0) return;
  cpu_set_t own;
  CPU_ZERO(&own);
  int index = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &all)) continue;
    if (index / each == rank) CPU_SET(core, &own);
    ++index;
  }
  sched_setaffinity(0, sizeof own, &own);
}

using Buffer = std::unique_ptr<float, decltype(&std::free)>;

Buffer allocate(size_t bytes) {
  const size_t whole = (bytes + kPage - 1) / kPage * kPage;
  return {static_cast<float*>(std::aligned_alloc(kPage, whole)), &std::free};
}

int measure(const std::vector<std::string>& arguments, int rank, int ranks) {
  std::vector<Work> works(arguments.size());
  size_t most = 0;
  for (size_t i = 0; i < works.size(); ++i) {
    if (!parse(arguments[i], ranks, works[i])) {
      if (rank == 0) {
        std::fprintf(stderr, "mpi_times: '%s' given for %d ranks\n%s", arguments[i].c_str(), ranks, kUsage);
      }
      return 2;
    }
    most = std::max(most, works[i].bytes);
  }
  const Buffer send = allocate(most);
  const Buffer recv = allocate(most);
  if (send == nullptr || recv == nullptr) {
    std::fprintf(stderr, "mpi_times: no memory\n");
    return 1;
  }
  if (rank == 0) std::printf("{\"version\": \"%s\"}\n", version().c_str());
  for (const Work& work : works) {
    Measurement measurement(work, rank, ranks, send.get(), recv.get());
    const double p50_us = measurement.time();
    if (!measurement.is_right()) {
      if (rank == 0) {
        std::fprintf(stderr, "mpi_times: %s of %zu bytes: wrong result\n", work.collective.c_str(),
                     work.bytes);
      }
      return 1;
    }
    if (rank == 0) {
      std::printf(
          "{\"collective\": \"%s\", \"bytes\": %zu, \"placement\": \"out_of_place\", \"p50_us\": %f}\n",
          work.collective.c_str(), work.bytes, p50_us);
    }
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front() == "--apart") {
    keep_to_own_cores(rank, ranks);
    arguments.erase(arguments.begin());
  }
  const int code = measure(arguments, rank, ranks);
  MPI_Finalize();
  return code;
}
