// neighbour.cc: a rank of a job that works beside attackers, and verifies all it computes. It is driven by
// lines on standard input, each of which is answered with one: "id"; "join RANKS RANK ID [TIMEOUT_MS]";
// "work", which goes on until "stop" comes. The ranks decide together when they stop. Its memory holds what a
// thief would look for.
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "hdt/hdt.h"
#include "tools/soak_parts/id_text.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kElements = 65'536;
constexpr int kTimeoutMs = 60'000;

hdtComm_t comm = nullptr;
int own_rank = 0;
int rank_count = 0;

int answer(hdtResult_t result, const std::string& words) {
  std::cout << static_cast<int>(result) << ' ' << (result == HDT_SUCCESS ? words : hdtGetLastError())
            << std::endl;
  return result == HDT_SUCCESS ? 0 : 1;
}

bool has_input() {
  pollfd input{0, POLLIN, 0};
  return ::poll(&input, 1, 0) > 0;
}

int32_t value(size_t element, int rank, uint32_t round) {
  return static_cast<int32_t>(element * 7 + static_cast<uint32_t>(rank) * 1'000'003U + round);
}

int32_t sum(size_t element, uint32_t round) {
  uint32_t all = 0;
  for (int rank = 0; rank < rank_count; ++rank) all += static_cast<uint32_t>(value(element, rank, round));
  return static_cast<int32_t>(all);
}

// In memory of hdtMemAlloc and in a vector by turns.
int work() {
  int32_t* shared[2] = {};
  for (auto& buffer : shared) {
    const hdtResult_t result = hdtMemAlloc(reinterpret_cast<void**>(&buffer), kElements * sizeof(int32_t));
    if (result != HDT_SUCCESS) return answer(result, "");
  }
  std::vector<int32_t> own[2] = {std::vector<int32_t>(kElements), std::vector<int32_t>(kElements)};
  uint64_t wrong = 0;
  Clock::duration longest{};
  std::cout << "0 working" << std::endl;
  for (uint32_t round = 0;; ++round) {
    const bool in_shared = round % 2 == 0;
    int32_t* input = in_shared ? shared[0] : own[0].data();
    int32_t* output = in_shared ? shared[1] : own[1].data();
    for (size_t i = 0; i < kElements; ++i) input[i] = value(i, own_rank, round);
    const auto begun = Clock::now();
    hdtResult_t result = hdtAllReduce(input, output, kElements, HDT_INT32, HDT_SUM, comm, nullptr);
    int32_t stop = has_input() ? 1 : 0;
    if (result == HDT_SUCCESS) result = hdtAllReduce(&stop, &stop, 1, HDT_INT32, HDT_MAX, comm, nullptr);
    longest = std::max(longest, Clock::now() - begun);
    if (result != HDT_SUCCESS) return answer(result, "");
    for (size_t i = 0; i < kElements; ++i) wrong += output[i] != sum(i, round) ? 1 : 0;
    for (size_t i = 0; i < kElements; ++i) wrong += input[i] != value(i, own_rank, round) ? 1 : 0;
    if (stop != 0) {
      std::string line;
      std::getline(std::cin, line);
      const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(longest).count();
      for (auto* buffer : shared) (void)hdtMemFree(buffer);
      return answer(HDT_SUCCESS,
                    std::to_string(round + 1) + " " + std::to_string(wrong) + " " + std::to_string(ms));
    }
    // A user's machine is not filled by one job.
    ::usleep(10'000);
  }
}

int execute(const std::string& text) {
  std::istringstream line(text);
  std::string verb;
  line >> verb;
  if (verb == "id") {
    hdtUniqueId_t id{};
    const hdtResult_t result = hdtGetUniqueId(&id);
    return answer(result, hdt::hex_of(id));
  }
  if (verb == "join") {
    std::string id;
    hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
    config.group_class = "neighbour";
    line >> rank_count >> own_rank >> id;
    config.timeout_ms = kTimeoutMs;
    if (int64_t other = 0; line >> other) config.timeout_ms = other;
    return answer(hdtCommInitRank(&comm, rank_count, hdt::id_of(id), own_rank, &config), "");
  }
  if (verb == "work") return work();
  if (verb == "destroy") return answer(hdtCommDestroy(comm), "");
  return 2;
}

}  // namespace

// Usage: neighbour USER. It gives up root, so that it may lie in a folder that only root can read.
int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto user = static_cast<uid_t>(std::strtoul(argv[1], nullptr, 10));
  if (user != ::getuid()) {
    if (::setgroups(0, nullptr) != 0 || ::setgid(user) != 0 || ::setuid(user) != 0) {
      std::perror("neighbour: cannot become the user");
      return 2;
    }
    // As a process that was this user's from the beginning: its other ranks may reach its memory.
    ::prctl(PR_SET_DUMPABLE, 1);
  }
  for (std::string line; std::getline(std::cin, line);) {
    if (const int failed = execute(line); failed != 0) return failed;
  }
  return 0;
}
