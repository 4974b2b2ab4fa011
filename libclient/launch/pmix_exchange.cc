// pmix_exchange.cc: publish is PMIx_Put and PMIx_Commit; fetch is PMIx_Get_nb, repeated until the
// deadline.
//
// The non-blocking form is used because servers are known not to keep the time limit of a request. Each
// request lives in a shared object of its own, so one that is answered late, after we have stopped
// waiting, does no harm.
#include "libclient/launch/pmix_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "base/fork_mark.h"
#include "libclient/launch/pmix_library.h"

namespace hdt::client {
namespace {

// The maximum of a value, in bytes.
constexpr size_t kMaxValueBytes = 64 << 10;
// A request that gets no answer is repeated, since a server may have missed the arrival of the key. It
// is repeated less and less often, because launchers keep unanswered requests and have room for few.
constexpr int64_t kFirstRequestSeconds = 2;
constexpr int64_t kLongestRequestSeconds = 64;
// Pauses between two requests that were answered with "not found".
constexpr int64_t kFirstPauseNs = 5 * kNsPerMs;
constexpr int64_t kLongestPauseNs = 200 * kNsPerMs;

// The failure of a call of libpmix, in words and as a number.
Status failed(const PmixLibrary& pmix, const std::string& what, pmix_status_t status) {
  return {Code::kSystem, fmt::format("PMIx: {}: {} ({})", what, pmix.error_string(status), status)};
}

// An argument of a call: `key` with an int.
void set_info(pmix_info_t& info, const char* key, int value) {
  std::memset(&info, 0, sizeof info);
  std::strncpy(info.key, key, PMIX_MAX_KEYLEN);
  info.value.type = PMIX_INT;
  info.value.data.integer = value;
}

// One PMIx_Get_nb. It is shared with the callback, which libpmix may run after we have stopped waiting;
// libpmix reads the arguments of the call, too, until then.
struct Request {
  pmix_proc_t process;
  std::string key;
  pmix_info_t limit;

  std::mutex mutex;
  std::condition_variable done;
  bool is_done = false;
  pmix_status_t status = PMIX_ERR_TIMEOUT;
  // The value, if it is a byte object.
  std::vector<uint8_t> bytes;
  // The value, if it is a uint32.
  uint32_t number = 0;
  // False: it is neither.
  bool type_fits = false;
};

// libpmix calls this on a thread of its own, once for each request. `context` is a shared_ptr on the
// heap, which keeps the request alive until then. `value` is libpmix's, so its bytes are copied.
void on_value(pmix_status_t status, pmix_value_t* value, void* context) {
  const std::unique_ptr<std::shared_ptr<Request>> held(static_cast<std::shared_ptr<Request>*>(context));
  Request& request = **held;
  const std::lock_guard lock(request.mutex);
  request.status = status;
  if (status == PMIX_SUCCESS && value != nullptr) {
    if (value->type == PMIX_BYTE_OBJECT && value->data.bo.size <= kMaxValueBytes) {
      const auto* begin = reinterpret_cast<const uint8_t*>(value->data.bo.bytes);
      request.bytes.assign(begin, begin + value->data.bo.size);
      request.type_fits = true;
    } else if (value->type == PMIX_UINT32) {
      request.number = value->data.uint32;
      request.type_fits = true;
    }
  }
  request.is_done = true;
  request.done.notify_all();
}

// One request to the server. Waits for its answer, at most about `limit_seconds` and until the deadline;
// then the status is PMIX_ERR_TIMEOUT.
std::shared_ptr<Request> get_once(const PmixLibrary& pmix, const pmix_proc_t& process, const std::string& key,
                                  int64_t limit_seconds, Deadline deadline) {
  auto request = std::make_shared<Request>();
  request->process = process;
  request->key = key;
  // A limit of 0 would mean none.
  set_info(request->limit, PMIX_TIMEOUT, static_cast<int>(limit_seconds));
  auto* context = new std::shared_ptr<Request>(request);
  const pmix_status_t status =
      pmix.get_nb(&request->process, request->key.c_str(), &request->limit, 1, on_value, context);
  std::unique_lock lock(request->mutex);
  if (status != PMIX_SUCCESS) {
    delete context;  // the callback will not run
    request->status = status;
    return request;
  }
  // The server should answer within its limit; Open MPI 4's does not for ranks of other nodes.
  const int64_t wait_ns = std::min(deadline.remaining_ns(), (limit_seconds + 1) * kNsPerSecond);
  request->done.wait_for(lock, std::chrono::nanoseconds(wait_ns), [&] { return request->is_done; });
  return request;
}

// A rank of a job, in libpmix's words.
pmix_proc_t process_of(const std::string& name_space, pmix_rank_t rank) {
  pmix_proc_t process;
  std::memset(&process, 0, sizeof process);
  std::strncpy(process.nspace, name_space.c_str(), PMIX_MAX_NSLEN);
  process.rank = rank;
  return process;
}

}  // namespace

Result<PmixExchange*> PmixExchange::instance() {
  static const auto* connected =
      new Result<PmixExchange*>(connect());  // other threads may use it during exit
  return *connected;
}

Result<PmixExchange*> PmixExchange::connect() {
  // Without a server PMIx_Init succeeds nevertheless, with a job of its own of one process.
  const char* name_space = std::getenv("PMIX_NAMESPACE");
  if (name_space == nullptr || *name_space == '\0') {
    return Status(
        Code::kNoDaemon,
        "no PMIx server: PMIX_NAMESPACE is not set; start the program with mpirun or srun --mpi=pmix, or set "
        "HDT_RENDEZVOUS=host:port");
  }
  const Result<const PmixLibrary*> library = pmix_library();
  if (!library.is_ok()) return library.status();
  const PmixLibrary& pmix = *library.value();
  pmix_proc_t self;
  std::memset(&self, 0, sizeof self);
  const pmix_status_t status = pmix.init(&self, nullptr, 0);
  if (status != PMIX_SUCCESS) {
    return Status(Code::kNoDaemon, fmt::format("the PMIx server of job {} cannot be reached: {} ({})",
                                               name_space, pmix.error_string(status), status));
  }
  // Launchers report a process that connected and ended without this call as failed. Not earlier, because a
  // process that has said good-bye to the server cannot come back, e.g. for MPI_Init; libpmix counts its
  // users.
  std::atexit([] {
    if (forked()) return;  // it is the parent that says good-bye
    const Result<const PmixLibrary*> loaded = pmix_library();
    if (loaded.is_ok()) loaded.value()->finalize(nullptr, 0);
  });
  return new PmixExchange(std::string(self.nspace, strnlen(self.nspace, PMIX_MAX_NSLEN)),
                          static_cast<int>(self.rank));
}

// Values of the whole job are asked of a wildcard rank.
Result<int> PmixExchange::job_size() {
  // It is loaded: this object exists.
  const PmixLibrary& pmix = *pmix_library().take();
  const std::shared_ptr<Request> request = get_once(pmix, process_of(name_space_, PMIX_RANK_WILDCARD),
                                                    PMIX_JOB_SIZE, 10, Deadline::after_ms(10'000));
  const std::lock_guard lock(request->mutex);
  if (request->status != PMIX_SUCCESS) return failed(pmix, "reading the job's size", request->status);
  // The bound is that of ranks from variables (environment.cc).
  if (!request->type_fits || request->number == 0 || request->number > 1U << 20) {
    return Status(Code::kSystem, "PMIx: the job's size is not a number 1..1048576");
  }
  return static_cast<int>(request->number);
}

// Put hands the value to libpmix, and commit sends it to the server. Nothing waits for the other ranks.
Status PmixExchange::publish(const std::string& key, std::span<const uint8_t> value) {
  if (key.empty() || key.size() > PMIX_MAX_KEYLEN || value.empty() || value.size() > kMaxValueBytes) {
    return {Code::kInvalidArgument,
            fmt::format("PMIx: expected a key of 1..{} bytes and a value of 1..{} bytes", PMIX_MAX_KEYLEN,
                        kMaxValueBytes)};
  }
  const PmixLibrary& pmix = *pmix_library().take();
  // PMIx_Put takes what is not const, and copies it.
  std::vector<uint8_t> copy(value.begin(), value.end());
  pmix_value_t object;
  std::memset(&object, 0, sizeof object);
  object.type = PMIX_BYTE_OBJECT;
  object.data.bo.bytes = reinterpret_cast<char*>(copy.data());
  object.data.bo.size = copy.size();
  pmix_status_t status = pmix.put(PMIX_GLOBAL, key.c_str(), &object);
  if (status != PMIX_SUCCESS) return failed(pmix, "publishing " + key, status);
  status = pmix.commit();
  if (status != PMIX_SUCCESS) return failed(pmix, "publishing " + key, status);
  return Status::ok();
}

// The server may answer at once that it has nothing, or not at all. So the request is repeated, after
// pauses that grow, with limits that grow when there was no answer.
Result<std::vector<uint8_t>> PmixExchange::fetch(int rank, const std::string& key, Deadline deadline) {
  if (rank < 0 || key.empty() || key.size() > PMIX_MAX_KEYLEN) {
    return Status(Code::kInvalidArgument, "PMIx: expected a rank of at least 0 and a key of 1..511 bytes");
  }
  const PmixLibrary& pmix = *pmix_library().take();
  const pmix_proc_t process = process_of(name_space_, static_cast<pmix_rank_t>(rank));
  int64_t pause_ns = kFirstPauseNs;
  int64_t limit_seconds = kFirstRequestSeconds;
  while (true) {
    const std::shared_ptr<Request> request = get_once(pmix, process, key, limit_seconds, deadline);
    {
      const std::lock_guard lock(request->mutex);
      if (request->status == PMIX_SUCCESS) {
        if (!request->type_fits || request->bytes.empty()) {
          return Status(Code::kSystem,
                        fmt::format("PMIx: {} of rank {} is not the bytes of an HDT process", key, rank));
        }
        return request->bytes;
      }
      // A server that already has other data of the rank does not wait for more but answers "not found".
      const bool may_come = request->status == PMIX_ERR_NOT_FOUND || request->status == PMIX_ERR_TIMEOUT;
      if (!may_come) return failed(pmix, fmt::format("fetching {} of rank {}", key, rank), request->status);
      if (request->status == PMIX_ERR_TIMEOUT)
        limit_seconds = std::min(2 * limit_seconds, kLongestRequestSeconds);
    }
    if (deadline.expired()) {
      return Status(Code::kTimeout, fmt::format("PMIx: rank {} has not published {}", rank, key));
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(std::min(pause_ns, deadline.remaining_ns())));
    pause_ns = std::min(2 * pause_ns, kLongestPauseNs);
  }
}

}  // namespace hdt::client
