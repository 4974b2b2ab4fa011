// rank_program.cc: a rank driven by lines on standard input. Every line is answered with one: the result's
// number and the library's words.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "hdt/hdt.h"
#include "tests/faults/restart/work.h"
#include "tools/soak_parts/id_text.h"

namespace {

using hdt::hex_of;
using hdt::id_of;

hdtComm_t comm = nullptr;
hdtComm_t second = nullptr;
// Zeros that the kernel makes when they are touched: a test starts many ranks, most of which send a few
// bytes. (The thread sanitizer's calloc() touches them all.)
void* const data =
    ::mmap(nullptr, size_t{64} << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

hdtResult_t execute(std::istringstream& line, std::string& extra) {
  std::string verb;
  line >> verb;
  if (verb == "id") {
    hdtUniqueId_t id{};
    const hdtResult_t result = hdtGetUniqueId(&id);
    extra = hex_of(id);
    return result;
  }
  if (verb == "join") {
    int ranks = 0;
    int rank = 0;
    std::string id;
    hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
    std::string group_class;
    line >> ranks >> rank >> config.timeout_ms >> id >> group_class;
    if (!group_class.empty()) config.group_class = group_class.c_str();
    return hdtCommInitRank(&comm, ranks, id_of(id), rank, &config);
  }
  if (verb == "init") return hdtCommInit(&comm, nullptr);
  if (verb == "barrier") return hdtBarrier(comm, nullptr);
  if (verb == "destroy") {
    const hdtResult_t result = hdtCommDestroy(comm);
    comm = nullptr;
    return result;
  }
  if (verb == "abort") return hdtCommAbort(comm);
  if (verb == "timeout") {  // of the calls that come
    int64_t timeout_ms = 0;
    line >> timeout_ms;
    return hdtCommSetTimeout(comm, timeout_ms);
  }
  if (verb == "failed") {  // by which rank
    int rank = 0;
    const hdtResult_t result = hdtCommFailedRank(comm, &rank);
    extra = std::to_string(rank);
    return result;
  }
  if (verb == "shrink") {  // to a second group; "second" makes it the one that is called on
    std::vector<int> excluded;
    hdtCommConfig_t config = HDT_COMM_CONFIG_INIT;
    line >> config.timeout_ms;
    for (int rank = 0; line >> rank;) excluded.push_back(rank);
    return hdtCommShrink(comm, excluded.data(), static_cast<int>(excluded.size()), &second, &config);
  }
  if (verb == "second") {
    std::swap(comm, second);
    return HDT_SUCCESS;
  }
  if (verb == "sum") {
    int64_t value = 0;
    line >> value;
    const hdtResult_t result = hdtAllReduce(&value, &value, 1, HDT_INT64, HDT_SUM, comm, nullptr);
    extra = result == HDT_SUCCESS ? std::to_string(value) : "";
    return result;
  }
  if (verb == "work") {
    uint64_t seed = 0;
    std::string stop;
    bool in_place = false;
    uint64_t rounds = 0;
    line >> seed >> stop >> in_place >> rounds;
    return hdt::testing::work(comm, seed, stop, in_place, rounds, extra);
  }
  if (verb == "exit") std::exit(0);  // as if main() had returned: not answered
  if (verb == "exec") ::execl("/bin/sleep", "sleep", "60", nullptr);
  if (verb == "fork") {  // a child that calls nothing of HDT, and lives on
    if (::fork() == 0) {
      ::sleep(5);
      ::_exit(0);
    }
    return HDT_SUCCESS;
  }
  size_t count = 0;
  int type = 0;
  int last = 0;  // reduction, root or peer
  line >> count >> type >> last;
  const auto element = static_cast<hdtDataType_t>(type);
  if (verb == "allreduce")
    return hdtAllReduce(data, data, count, element, static_cast<hdtRedOp_t>(last), comm, nullptr);
  if (verb == "broadcast") return hdtBroadcast(data, data, count, element, last, comm, nullptr);
  if (verb == "send") return hdtSend(data, count, element, last, comm, nullptr);
  if (verb == "recv") return hdtRecv(data, count, element, last, comm, nullptr);
  if (verb == "recv_any") return hdtRecvAny(data, count, element, nullptr, comm, nullptr);
  extra = "unknown verb " + verb;
  return HDT_ERR_INVALID_USAGE;
}

}  // namespace

#if defined(__SANITIZE_THREAD__)
// Ranks are killed, or end with their session's thread: the report of that thread, which is suppressed
// (tests/tsan.supp), costs half a second of looking for names of functions.
extern "C" const char* __tsan_default_options() { return "report_thread_leaks=0"; }
#endif

int main() {
  std::string text;
  while (std::getline(std::cin, text)) {
    std::istringstream line(text);
    std::string extra;
    const hdtResult_t result = execute(line, extra);
    if (extra.empty() && result != HDT_SUCCESS) extra = hdtGetLastError();
    std::cout << static_cast<int>(result) << ' ' << extra << std::endl;
  }
  return 0;
}
