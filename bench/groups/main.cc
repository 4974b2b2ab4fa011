// main.cc: hdt-bench-groups, a rank for measuring what groups cost a daemon. It joins its job's group.
// Each line of its input is a number of further groups of all ranks to make. It prints "ready" after
// joining and after each line, and keeps all groups until its input ends. The script that starts it
// looks at the daemon between two lines.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "hdt/hdt.hpp"

namespace {

constexpr int kMostGroups = 100000;

void say_ready() {
  std::puts("ready");
  std::fflush(stdout);
}

void make_groups(hdt::Communicator& all, int count, std::vector<hdt::Communicator>& groups) {
  for (int i = 0; i < count; ++i) {
    groups.push_back(all.split(0, all.rank()).value());
    // Uses the group once, so that what a group needs only when it is used is there too.
    groups.back().barrier();
  }
}

// Makes what the input asks for. Every rank of the job reads the same lines, as all must make the same
// groups. False: a line is wrong.
bool serve(hdt::Communicator& all) {
  say_ready();
  std::vector<hdt::Communicator> groups;
  char line[32];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const long count = std::strtol(line, nullptr, 10);
    if (count < 1 || count > kMostGroups) {
      std::fprintf(stderr, "hdt-bench-groups: a line of input is no number from 1 to %d\n", kMostGroups);
      return false;
    }
    make_groups(all, static_cast<int>(count), groups);
    say_ready();
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
  try {
    hdt::Communicator all;
    return serve(all) ? 0 : 1;
  } catch (const hdt::Error& error) {
    std::fprintf(stderr, "hdt-bench-groups: %s\n", error.what());
    return 1;
  }
}
