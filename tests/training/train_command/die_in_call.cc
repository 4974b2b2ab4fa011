// die_in_call.cc: a library that a test loads before libhdt (LD_PRELOAD): the process kills itself at a
// moment that nobody outside it could meet. HDT_TEST_DIE_BEFORE_CALL=n: before the n-th call after its first
// successful hdtCommShrink. HDT_TEST_DIE_IN_SHRINK_US=n: n microseconds after it has entered that.
#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "hdt/hdt.h"

namespace {

// What libhdt has by this name.
template <typename Function>
Function real(const char* name) {
  auto* const found = reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
  if (found == nullptr) std::abort();
  return found;
}

// -1: the variable is not set.
long number_in(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? -1 : std::atol(text);
}

// Calls until the end; 0: they are not counted.
std::atomic<long> calls_left{0};

void count_call() {
  if (calls_left > 0 && --calls_left == 0) ::raise(SIGKILL);
}

}  // namespace

hdtResult_t hdtCommShrink(hdtComm_t comm, const int excluded[], int count, hdtComm_t* newcomm,
                          const hdtCommConfig_t* config) {
  if (const long us = number_in("HDT_TEST_DIE_IN_SHRINK_US"); us >= 0) {
    std::thread([us] {
      ::usleep(static_cast<useconds_t>(us));
      ::raise(SIGKILL);
    }).detach();
  }
  const hdtResult_t result =
      real<decltype(&hdtCommShrink)>("hdtCommShrink")(comm, excluded, count, newcomm, config);
  if (const long calls = number_in("HDT_TEST_DIE_BEFORE_CALL"); result == HDT_SUCCESS && calls > 0)
    calls_left = calls;
  return result;
}

hdtResult_t hdtCommSplit(hdtComm_t comm, int color, int key, hdtComm_t* newcomm,
                         const hdtCommConfig_t* config) {
  count_call();
  return real<decltype(&hdtCommSplit)>("hdtCommSplit")(comm, color, key, newcomm, config);
}

hdtResult_t hdtAllReduce(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type, hdtRedOp_t op,
                         hdtComm_t comm, hdtRequest_t* request) {
  count_call();
  return real<decltype(&hdtAllReduce)>("hdtAllReduce")(sendbuf, recvbuf, count, type, op, comm, request);
}

hdtResult_t hdtAllGather(const void* sendbuf, void* recvbuf, size_t sendcount, hdtDataType_t type,
                         hdtComm_t comm, hdtRequest_t* request) {
  count_call();
  return real<decltype(&hdtAllGather)>("hdtAllGather")(sendbuf, recvbuf, sendcount, type, comm, request);
}

hdtResult_t hdtBroadcast(const void* sendbuf, void* recvbuf, size_t count, hdtDataType_t type, int root,
                         hdtComm_t comm, hdtRequest_t* request) {
  count_call();
  return real<decltype(&hdtBroadcast)>("hdtBroadcast")(sendbuf, recvbuf, count, type, root, comm, request);
}
