// forking_rank.cc: a rank driven by lines on standard input, as rank_program, that makes children in all ways
// there are. HDT_TEST_APART=pid: it is the first process of a PID namespace of its own; =user: of a user
// namespace, too. Its layout of memory is not randomized in either case, so that it is the same as that of
// the other ranks.
#include <fcntl.h>
#include <sched.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "hdt/hdt.h"
#include "tools/soak_parts/id_text.h"

namespace {

hdtComm_t comm = nullptr;
void* shared = nullptr;  // of hdtMemAlloc

bool is_child = false;

}  // namespace

// The leak sanitizer's question at the end. In a child the other threads' stacks are gone, and what they
// pointed to is no leak.
extern "C" __attribute__((visibility("default"))) int __lsan_is_turned_off();  // NOLINT
extern "C" int __lsan_is_turned_off() { return is_child ? 1 : 0; }             // NOLINT

namespace {

// Descriptors that the program was started with are no affair of HDT's.
long open_descriptors() {
  long open = 0;
  for (int fd = 0; fd < 1024; ++fd) open += ::fcntl(fd, F_GETFD) >= 0 ? 1 : 0;
  return open;
}
const long at_start = open_descriptors();

// A C++ program does this at its end: handles are destroyed by static destructors, in children, too.
struct AtExit {
  ~AtExit() { (void)hdtCommDestroy(comm); }
} at_exit;

// Allreduces of floats, of ordinary memory, each checked. Counts what is wrong.
std::string sums(int rank, int ranks, size_t count, int calls, hdtResult_t& result) {
  std::vector<float> in(count), out(count);
  size_t wrong = 0;
  for (int call = 0; call < calls; ++call) {
    for (size_t i = 0; i < count; ++i) {
      in[i] = static_cast<float>(static_cast<size_t>(rank + 1) + (i + static_cast<size_t>(call)) % 7);
      out[i] = -1;
    }
    result = hdtAllReduce(in.data(), out.data(), count, HDT_FLOAT32, HDT_SUM, comm, nullptr);
    if (result != HDT_SUCCESS) return hdtGetLastError();
    for (size_t i = 0; i < count; ++i) {
      const size_t expected = static_cast<size_t>(ranks * (ranks + 1) / 2) +
                              static_cast<size_t>(ranks) * ((i + static_cast<size_t>(call)) % 7);
      wrong += out[i] != static_cast<float>(expected) ? 1 : 0;
    }
  }
  return std::to_string(wrong) + " wrong";
}

// Every entry point must refuse. Returns the first that does not, or whose words do not say why.
const char* unrefused() {
  static char buffer[64];
  const size_t counts[] = {1, 1, 1, 1};
  size_t suggested[4];
  int number = 0;
  hdtComm_t made = nullptr;
  hdtUniqueId_t id{};
  hdtResult_t async = HDT_SUCCESS;
  hdtRedOp_t op = HDT_SUM;
  auto* request = reinterpret_cast<hdtRequest_t>(buffer);
  void* memory = nullptr;
  const float scalar = 1;
  const std::pair<const char*, hdtResult_t> calls[] = {
      {"hdtGetUniqueId", hdtGetUniqueId(&id)},
      {"hdtDeriveUniqueId", hdtDeriveUniqueId(&id, &id, 1)},
      {"hdtCommInitRank", hdtCommInitRank(&made, 1, id, 0, nullptr)},
      {"hdtCommInit", hdtCommInit(&made, nullptr)},
      {"hdtCommSplit", hdtCommSplit(comm, 0, 0, &made, nullptr)},
      {"hdtCommShrink", hdtCommShrink(comm, nullptr, 0, &made, nullptr)},
      {"hdtCommDestroy", hdtCommDestroy(comm)},
      {"hdtCommAbort", hdtCommAbort(comm)},
      {"hdtCommGetAsyncError", hdtCommGetAsyncError(comm, &async)},
      {"hdtCommCount", hdtCommCount(comm, &number)},
      {"hdtCommUserRank", hdtCommUserRank(comm, &number)},
      {"hdtCommNodes", hdtCommNodes(comm, &number)},
      {"hdtCommSetTimeout", hdtCommSetTimeout(comm, 1)},
      {"hdtCommSetSamples", hdtCommSetSamples(comm, 1)},
      {"hdtCommFailedRank", hdtCommFailedRank(comm, &number)},
      {"hdtCommNodeOf", hdtCommNodeOf(comm, 0, &number)},
      {"hdtMemAlloc", hdtMemAlloc(&memory, 1)},
      {"hdtMemFree", hdtMemFree(shared)},
      {"hdtAllReduce", hdtAllReduce(buffer, buffer, 1, HDT_INT32, HDT_SUM, comm, nullptr)},
      {"hdtReduce", hdtReduce(buffer, buffer, 1, HDT_INT32, HDT_SUM, 0, comm, nullptr)},
      {"hdtReduceScatter", hdtReduceScatter(buffer, buffer, 1, HDT_INT32, HDT_SUM, comm, nullptr)},
      {"hdtAllGather", hdtAllGather(buffer, buffer, 1, HDT_INT32, comm, nullptr)},
      {"hdtBroadcast", hdtBroadcast(buffer, buffer, 1, HDT_INT32, 0, comm, nullptr)},
      {"hdtGather", hdtGather(buffer, buffer, 1, HDT_INT32, 0, comm, nullptr)},
      {"hdtScatter", hdtScatter(buffer, buffer, 1, HDT_INT32, 0, comm, nullptr)},
      {"hdtAllToAll", hdtAllToAll(buffer, buffer, 1, HDT_INT32, comm, nullptr)},
      {"hdtAllToAllV",
       hdtAllToAllV(buffer, counts, counts, buffer, counts, counts, HDT_INT32, comm, nullptr)},
      {"hdtAllGatherV", hdtAllGatherV(buffer, buffer, counts, counts, HDT_INT32, comm, nullptr)},
      {"hdtReduceScatterV", hdtReduceScatterV(buffer, buffer, counts, HDT_INT32, HDT_SUM, comm, nullptr)},
      {"hdtSuggestCounts", hdtSuggestCounts(comm, 1, HDT_INT32, suggested)},
      {"hdtRedOpCreatePreMulSum", hdtRedOpCreatePreMulSum(&op, &scalar, HDT_FLOAT32, comm)},
      {"hdtRedOpDestroy", hdtRedOpDestroy(op, comm)},
      {"hdtBarrier", hdtBarrier(comm, nullptr)},
      {"hdtSend", hdtSend(buffer, 1, HDT_INT32, 0, comm, nullptr)},
      {"hdtRecv", hdtRecv(buffer, 1, HDT_INT32, 0, comm, nullptr)},
      {"hdtRecvAny", hdtRecvAny(buffer, 1, HDT_INT32, nullptr, comm, nullptr)},
      {"hdtSendRecv", hdtSendRecv(buffer, 1, 0, buffer, 1, 0, HDT_INT32, comm, nullptr)},
      {"hdtGroupStart", hdtGroupStart()},
      {"hdtGroupEnd", hdtGroupEnd()},
      {"hdtTest", hdtTest(&request)},
      {"hdtWait", hdtWait(&request, -1)},
      {"hdtWhenDone", hdtWhenDone(
                          request, [](void*) { std::abort(); }, nullptr)},
  };
  for (const auto& [name, result] : calls) {
    if (result != HDT_ERR_INVALID_USAGE) return name;
  }
  if (std::strstr(hdtGetLastError(), "fork") == nullptr) return "hdtGetLastError";
  if (std::strstr(hdtCommErrorMessage(comm), "fork") == nullptr) return "hdtCommErrorMessage";
  return nullptr;
}

// The child's part of `how`; returns only to end by exit(), with its static destructors.
int live(const std::string& how) {
  if (how == "sleep" || how == "clone" || how == "daemon") ::pause();  // the test ends it
  if (how == "stop") ::raise(SIGSTOP);
  if (how == "exit") return 0;
  if (how == "_exit") ::_exit(0);
  if (how == "exec") ::execl("/bin/true", "true", nullptr);
  if (how == "kill") ::raise(SIGKILL);
  if (how == "read") return std::memcmp(shared, "shared", 6);
  if (how == "calls") {
    const char* taken = unrefused();
    if (taken != nullptr) std::fprintf(stderr, "%s is not refused as it should be\n", taken);
    return taken != nullptr ? 1 : 0;
  }
  if (how == "descriptors") return static_cast<int>(open_descriptors() - at_start);
  return 99;
}

pid_t make_child(const std::string& how) {
  // Bare clone: no handler of pthread_atfork runs.
  const auto pid = static_cast<pid_t>(
      how == "clone" ? ::syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr) : ::fork());
  if (pid != 0) return pid;
  is_child = true;
  std::exit(live(how));
}

// As daemons do: the parent of what lives on ends at once, and that is in a session of its own.
pid_t make_daemon() {
  int told[2];
  if (::pipe2(told, O_CLOEXEC) != 0) return -1;
  pid_t daemon = -1;
  const pid_t between = ::fork();
  if (between == 0) {
    ::setsid();
    daemon = make_child("daemon");
    ::_exit(::write(told[1], &daemon, sizeof daemon) == sizeof daemon ? 0 : 1);
  }
  ::waitpid(between, nullptr, 0);
  if (::read(told[0], &daemon, sizeof daemon) != sizeof daemon) daemon = -1;
  ::close(told[0]);
  ::close(told[1]);
  return daemon;
}

// How the child ended: "0" by itself, "killed by 9", or "does not end".
std::string ended(pid_t pid, int64_t limit_ms) {
  int status = 0;
  for (int64_t waited = 0; ::waitpid(pid, &status, WNOHANG) == 0; ++waited) {
    if (waited == limit_ms) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, &status, 0);
      return "does not end";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return WIFEXITED(status) ? std::to_string(WEXITSTATUS(status))
                           : "killed by " + std::to_string(WTERMSIG(status));
}

hdtResult_t execute(std::istringstream& line, std::string& extra) {
  constexpr int64_t kLimitMs = 20'000;
  std::string verb;
  line >> verb;
  if (verb == "id") {
    hdtUniqueId_t id{};
    const hdtResult_t result = hdtGetUniqueId(&id);
    if (result == HDT_SUCCESS) extra = hdt::hex_of(id);
    return result;
  }
  if (verb == "join") {
    int ranks = 0, rank = 0;
    std::string id;
    hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
    line >> ranks >> rank >> config.timeout_ms >> id;
    return hdtCommInitRank(&comm, ranks, hdt::id_of(id), rank, &config);
  }
  if (verb == "sums") {  // rank ranks count calls
    int rank = 0, ranks = 0, calls = 0;
    size_t count = 0;
    line >> rank >> ranks >> count >> calls;
    hdtResult_t result = HDT_SUCCESS;
    extra = sums(rank, ranks, count, calls, result);
    return result;
  }
  if (verb == "allocate") {
    const hdtResult_t result = hdtMemAlloc(&shared, 64);
    if (result == HDT_SUCCESS) std::memcpy(shared, "shared", 6);
    return result;
  }
  std::string how;
  line >> how;
  if (verb == "child") {  // that lives on
    extra = std::to_string(how == "daemon" ? make_daemon() : make_child(how));
    return HDT_SUCCESS;
  }
  if (verb == "ends") {
    extra = ended(make_child(how), kLimitMs);
    return HDT_SUCCESS;
  }
  // how rank ranks count calls: children that end, one after another, while calls go on in another thread
  if (verb == "children") {
    int rank = 0, ranks = 0, calls = 0;
    size_t count = 0;
    line >> rank >> ranks >> count >> calls;
    std::atomic<bool> done{false};
    hdtResult_t result = HDT_SUCCESS;
    std::thread caller([&] {
      extra = sums(rank, ranks, count, calls, result);
      done = true;
    });
    std::string bad;
    int children = 0;
    for (; !done && bad.empty(); ++children) {
      const std::string end = ended(make_child(how), kLimitMs);
      if (end != (how == "kill" ? "killed by 9" : "0")) bad = "child " + std::to_string(children) + " " + end;
    }
    caller.join();
    extra += bad.empty() ? "" : ", " + bad;
    return result;
  }
  if (verb == "spawned") {  // descriptors that a program has which was started without fork()
    FILE* list =
        ::popen("ls -l /proc/self/fd | grep -cE 'memfd|eventfd|eventpoll|pidfd|socket'", "r");  // NOLINT
    char text[32] = {};
    if (list != nullptr && std::fgets(text, sizeof text, list) != nullptr)
      extra = std::atoi(text) == 0 ? "none" : text;
    if (list != nullptr) ::pclose(list);
    return HDT_SUCCESS;
  }
  extra = "unknown verb " + verb;
  return HDT_ERR_INVALID_USAGE;
}

void serve() {
  std::string text;
  while (std::getline(std::cin, text)) {
    std::istringstream line(text);
    std::string extra;
    const hdtResult_t result = execute(line, extra);
    if (extra.empty() && result != HDT_SUCCESS) extra = hdtGetLastError();
    std::cout << static_cast<int>(result) << ' ' << extra << std::endl;
  }
}

// Into namespaces of its own, where it is pid 1. The process that was started waits for it.
void go_apart(const std::string& which) {
  if (::unshare(which == "user" ? CLONE_NEWUSER | CLONE_NEWPID : CLONE_NEWPID) != 0) {
    std::perror("unshare");
    ::_exit(2);
  }
  const pid_t first = ::fork();
  if (first == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    return;
  }
  int status = 0;
  ::waitpid(first, &status, 0);
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

}  // namespace

int main(int argc, char** argv) {
  const char* apart = std::getenv("HDT_TEST_APART");
  if (apart != nullptr) {
    if (argc == 1) {
      ::personality(ADDR_NO_RANDOMIZE);
      ::execl("/proc/self/exe", argv[0], "fixed", nullptr);
      return 2;
    }
    go_apart(apart);
  }
  if (std::getenv("HDT_TEST_LEADERLESS") != nullptr) {
    // The first thread ends, the process does not.
    std::thread([] {
      serve();
      std::exit(0);
    }).detach();
    ::pthread_exit(nullptr);
  }
  if (std::getenv("HDT_TEST_FORKED") != nullptr) {
    const pid_t child = ::fork();  // nothing of HDT has been called
    if (child != 0) {
      int status = 0;
      ::waitpid(child, &status, 0);
      return WEXITSTATUS(status);
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  }
  serve();
  return 0;
}
