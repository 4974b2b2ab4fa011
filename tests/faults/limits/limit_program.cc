// limit_program.cc: a rank that sets limits for itself, driven by lines on standard input. Every line is
// answered with one: the result's number and the library's words, or a number.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hdt/hdt.h"

namespace {

constexpr size_t kBigCount = size_t{1} << 18;  // floats

hdtComm_t world = nullptr;
std::vector<hdtComm_t> groups;
std::vector<int> filling;
std::vector<rlimit> before;
std::vector<int> limited;
void* memory = nullptr;

const std::map<std::string, int> kResources = {
    {"nofile", RLIMIT_NOFILE}, {"as", RLIMIT_AS}, {"fsize", RLIMIT_FSIZE}, {"nproc", RLIMIT_NPROC}};

uint64_t mapped_bytes() {
  std::ifstream statm("/proc/self/statm");
  uint64_t pages = 0;
  statm >> pages;
  return pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
}

// The soft limit; "as" counts from what is mapped now.
void set_limit(std::istringstream& line) {
  std::string name;
  uint64_t value = 0;
  line >> name >> value;
  const int resource = kResources.at(name);
  rlimit limit{};
  ::getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
  before.push_back(limit);
  limited.push_back(resource);
  limit.rlim_cur = resource == RLIMIT_AS ? mapped_bytes() + value : value;
  ::setrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
}

void lift_limits() {
  for (; !before.empty(); before.pop_back(), limited.pop_back())
    ::setrlimit(static_cast<__rlimit_resource_t>(limited.back()), &before.back());
  for (int fd : filling) ::close(fd);
  filling.clear();
}

// Leaves `left` descriptors.
void fill(size_t left) {
  for (;;) {
    const int fd = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd < 0) break;
    filling.push_back(fd);
  }
  for (; left > 0 && !filling.empty(); --left) {
    ::close(filling.back());
    filling.pop_back();
  }
}

size_t threads() {
  std::ifstream status("/proc/self/status");
  std::string word;
  size_t count = 0;
  while (status >> word) {
    if (word == "Threads:") status >> count;
  }
  return count;
}

hdtResult_t sum(hdtComm_t comm, hdtRequest_t* request, std::string& extra) {
  static float result = 0;
  const float one = 1;
  const hdtResult_t done = hdtAllReduce(&one, &result, 1, HDT_FLOAT32, HDT_SUM, comm, request);
  if (done == HDT_SUCCESS && request == nullptr) extra = std::to_string(static_cast<int>(result));
  return done;
}

hdtResult_t execute(std::istringstream& line, std::string& extra) {
  std::string verb;
  line >> verb;
  if (verb == "limit") return set_limit(line), HDT_SUCCESS;
  if (verb == "lift") return lift_limits(), HDT_SUCCESS;
  if (verb == "fill") {
    size_t left = 0;
    line >> left;
    return fill(left), HDT_SUCCESS;
  }
  if (verb == "user") {
    unsigned id = 0;
    line >> id;
    return ::setgid(id) == 0 && ::setuid(id) == 0 ? HDT_SUCCESS : HDT_ERR_SYSTEM;
  }
  if (verb == "threads") return extra = std::to_string(threads()), HDT_SUCCESS;
  if (verb == "init") return hdtCommInit(&world, nullptr);
  if (verb == "deterministic") {
    hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
    config.deterministic = 1;
    hdtComm_t made = nullptr;
    const hdtResult_t result = hdtCommSplit(world, 0, 0, &made, &config);
    if (result == HDT_SUCCESS) groups.push_back(made);
    return result;
  }
  if (verb == "destroy") return hdtCommDestroy(std::exchange(world, nullptr));
  if (verb == "split") {
    hdtComm_t made = nullptr;
    const hdtResult_t result = hdtCommSplit(world, 0, 0, &made, nullptr);
    if (result == HDT_SUCCESS) groups.push_back(made);
    return result;
  }
  if (verb == "sum") return sum(world, nullptr, extra);
  if (verb == "sums") {  // on all groups that were split
    for (hdtComm_t group : groups) {
      if (const hdtResult_t result = sum(group, nullptr, extra); result != HDT_SUCCESS) return result;
    }
    return extra = std::to_string(groups.size()), HDT_SUCCESS;
  }
  if (verb == "async") {
    hdtRequest_t request = nullptr;
    const hdtResult_t result = sum(world, &request, extra);
    return result != HDT_SUCCESS ? result : hdtWait(&request, -1);
  }
  if (verb == "alloc") {
    size_t bytes = 0;
    line >> bytes;
    return hdtMemAlloc(&memory, bytes);
  }
  if (verb == "big") {  // in memory of hdtMemAlloc
    return hdtAllReduce(memory, memory, kBigCount, HDT_FLOAT32, HDT_SUM, world, nullptr);
  }
  extra = "unknown verb " + verb;
  return HDT_ERR_INVALID_USAGE;
}

}  // namespace

int main() {
  for (std::string text; std::getline(std::cin, text);) {
    std::istringstream line(text);
    std::string extra;
    const hdtResult_t result = execute(line, extra);
    if (extra.empty() && result != HDT_SUCCESS) extra = hdtGetLastError();
    std::cout << static_cast<int>(result) << ' ' << extra << std::endl;
  }
  return 0;
}
