// main.cc: hdt-bench-groups, a rank for measuring what groups cost a daemon. It joins its job's group.
// Each line of its input is a number of further groups of all ranks to make. It prints "ready" after
// joining and after each line, and keeps all groups until its input ends. The script that starts it
// looks at the daemon between two lines.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "hdt/hdt.h"

namespace {

constexpr int kMostGroups = 100000;

bool succeeded(hdtResult_t result, const char* what) {
  if (result == HDT_SUCCESS) return true;
  std::fprintf(stderr, "hdt-bench-groups: %s: %s\n", what, hdtGetLastError());
  return false;
}

void say_ready() {
  std::puts("ready");
  std::fflush(stdout);
}

bool make_groups(hdtComm_t all, int count, std::vector<hdtComm_t>& groups) {
  int rank = 0;
  if (!succeeded(hdtCommUserRank(all, &rank), "hdtCommUserRank")) return false;
  for (int i = 0; i < count; ++i) {
    hdtComm_t group = nullptr;
    if (!succeeded(hdtCommSplit(all, 0, rank, &group, nullptr), "hdtCommSplit")) return false;
    groups.push_back(group);
    // Uses the group once, so that what a group needs only when it is used is there too.
    if (!succeeded(hdtBarrier(group, nullptr), "hdtBarrier")) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char**) {
  if (argc > 1) {
    std::fprintf(
        stderr,
        "hdt-bench-groups: arguments given; expected none (numbers of groups come by standard input)\n");
    return 2;
  }
  // Each group takes descriptors, so allow as many as possible.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  hdtComm_t all = nullptr;
  if (!succeeded(hdtCommInit(&all, nullptr), "joining the group")) return 1;
  say_ready();
  std::vector<hdtComm_t> groups;
  bool right = true;
  char line[32];
  // Every rank of the job reads the same lines, as all must make the same groups.
  while (right && std::fgets(line, sizeof line, stdin) != nullptr) {
    const long count = std::strtol(line, nullptr, 10);
    if (count < 1 || count > kMostGroups) {
      std::fprintf(stderr, "hdt-bench-groups: a line of input is no number from 1 to %d\n", kMostGroups);
      right = false;
    } else if ((right = make_groups(all, static_cast<int>(count), groups))) {
      say_ready();
    }
  }
  for (hdtComm_t group : groups) hdtCommDestroy(group);
  hdtCommDestroy(all);
  return right ? 0 : 1;
}
