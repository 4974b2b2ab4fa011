// main.cc: hdt-soak-rank, one rank of a job of tools/soak. Lines on standard input say what to do, and
// lines on standard output say what came of it:
//    id                        id HEX
//    join RANKS RANK HEX       joined RANK | error CODE WORDS
//    shrink RANK...            the same, without these ranks
//    run STEP                  from this step on: "step N OPERATIONS BYTES WRONG" after each one, "pause
//                              OPERATION BEGIN END EXCESS" (nanoseconds) for what took long, and in the end
//                              "paused N" or "failed N CODE OPERATION: WORDS"
//    stop                      while it runs: all ranks pause after the same step
//    leave                     left
//    exit                      nothing: the process ends without leaving
// Everything runs on the main thread. tools/soak may kill or stop the process at any moment.
#include <poll.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "hdt/hdt.h"
#include "tools/soak_parts/groups.h"
#include "tools/soak_parts/id_text.h"
#include "tools/soak_parts/step.h"

namespace {

using hdt::hex_of;
using hdt::id_of;
using hdt::soak::Groups;
using hdt::soak::Step;
using Words = unsigned long long;

// Lines of standard input, which can be asked for without waiting.
class Input {
 public:
  // Takes the next line. False: there is none; with `wait`, there will be none any more.
  bool next(std::string& line, bool wait) {
    for (;;) {
      if (const size_t end = text_.find('\n'); end != std::string::npos) {
        line = text_.substr(0, end);
        text_.erase(0, end + 1);
        return true;
      }
      pollfd entry{STDIN_FILENO, POLLIN, 0};
      if (ended_ || (!wait && poll(&entry, 1, 0) <= 0)) return false;
      char buffer[1024];
      const ssize_t got = read(STDIN_FILENO, buffer, sizeof buffer);
      if (got <= 0) ended_ = true;
      if (got > 0) text_.append(buffer, static_cast<size_t>(got));
    }
  }
  bool ended() const { return ended_; }

 private:
  std::string text_;
  bool ended_ = false;
};

// The answer to join and shrink.
void tell_joined(const Groups& groups, hdtResult_t result) {
  if (result == HDT_SUCCESS) {
    std::printf("joined %d\n", groups.rank);
  } else {
    std::printf("error %d %s\n", static_cast<int>(result), hdtGetLastError());
  }
}

// Runs steps until a stop was agreed on or an operation failed. A stop is only a wish of this rank; the
// step's last operation makes all ranks pause after the same step.
void run(Groups& groups, Step& step, uint64_t number, Input& input) {
  bool asked = false;
  for (;; ++number) {
    std::string line;
    if (input.next(line, false) && line == "stop") asked = true;
    // The process that drives the job is gone.
    if (input.ended()) std::exit(0);
    bool stop = asked;
    if (!step.run(number, stop)) {
      std::printf("failed %llu %d %s: %s\n", static_cast<Words>(number), static_cast<int>(step.failure),
                  step.failed_in.c_str(), step.failure_text.c_str());
      // Ranks that are in other operations of these groups must not wait for this one. The group of all
      // ranks stays, since shrink() needs it.
      groups.abort_parts();
      return;
    }
    std::printf("step %llu %llu %llu %llu\n", static_cast<Words>(number), static_cast<Words>(step.operations),
                static_cast<Words>(step.bytes), static_cast<Words>(step.wrong));
    if (stop) {
      std::printf("paused %llu\n", static_cast<Words>(number));
      return;
    }
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  char* end = nullptr;
  const uint64_t seed = argc == 2 ? std::strtoull(argv[1], &end, 10) : 0;
  if (argc != 2 || *end != 0) {
    std::fprintf(
        stderr,
        "hdt-soak-rank: expected: hdt-soak-rank SEED, and commands on standard input (see tools/soak)\n");
    return 2;
  }
  Groups groups;
  Step step(groups, seed);
  Input input;
  for (std::string text; input.next(text, true); std::fflush(stdout)) {
    std::istringstream line(text);
    std::string verb;
    line >> verb;
    if (verb == "id") {
      hdtUniqueId_t id{};
      const hdtResult_t result = hdtGetUniqueId(&id);
      if (result == HDT_SUCCESS) {
        std::printf("id %s\n", hex_of(id).c_str());
      } else {
        std::printf("error %d %s\n", static_cast<int>(result), hdtGetLastError());
      }
    } else if (verb == "join") {
      int ranks = 0;
      int rank = 0;
      std::string id;
      line >> ranks >> rank >> id;
      tell_joined(groups, groups.join(ranks, rank, id_of(id)));
    } else if (verb == "shrink") {
      std::vector<int> excluded;
      for (int rank = 0; line >> rank;) excluded.push_back(rank);
      tell_joined(groups, groups.shrink(excluded));
    } else if (verb == "run") {
      uint64_t number = 0;
      line >> number;
      run(groups, step, number, input);
    } else if (verb == "exit") {
      std::_Exit(0);
    } else if (verb == "leave") {
      groups.leave();
      std::puts("left");
      // A stop that comes after the job has paused or failed needs no answer.
    } else if (verb != "stop") {
      std::fprintf(stderr, "hdt-soak-rank: '%s' given; expected a command\n", text.c_str());
      return 2;
    }
  }
  return 0;
}
