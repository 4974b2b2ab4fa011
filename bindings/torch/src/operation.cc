// operation.cc: how operations end, and who waits for those that nobody else waits for. See operation.h.
#include "operation.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace hdt_torch {

void check(hdtResult_t result, const char* what) {
  if (result == HDT_SUCCESS) return;
  const std::string text = hdtGetLastError();
  throw_backend_error(std::string("hdt: ") + what + ": " +
                      (result == HDT_ERR_TIMEOUT ? "timed out (the timeout is over): " : "") +
                      (text.empty() ? hdtGetErrorString(result) : text));
}

// --- AbortHooks --------------------------------------------------------------------------------------------

// A function of Python takes Python's lock where it is destroyed: those that go do so behind the mutex.
void AbortHooks::add(int64_t id, std::function<void()> hook) {
  auto made = std::make_shared<const std::function<void()>>(std::move(hook));
  const std::lock_guard lock(mutex_);
  hooks_[id].swap(made);
  any_.store(true);
}

void AbortHooks::remove(int64_t id) {
  Hook gone;
  const std::lock_guard lock(mutex_);
  const auto found = hooks_.find(id);
  if (found == hooks_.end()) return;
  gone.swap(found->second);
  hooks_.erase(found);
  any_.store(!hooks_.empty());
}

void AbortHooks::clear() {
  std::map<int64_t, Hook> gone;
  const std::lock_guard lock(mutex_);
  gone.swap(hooks_);
  any_.store(false);
}

void AbortHooks::run() {
  std::map<int64_t, Hook> mine;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(ran_, true)) return;
    mine = hooks_;
  }
  for (const auto& [id, hook] : mine) (*hook)();
}

void AbortHooks::run_if_failed() {
  hdtResult_t failure = HDT_SUCCESS;
  if (hdtCommGetAsyncError(comm_, &failure) == HDT_SUCCESS && failure != HDT_SUCCESS) run();
}

// --- Operation ---------------------------------------------------------------------------------------------

void Operation::begin(const std::function<hdtResult_t(hdtRequest_t*)>& call) {
  requests_.push_back(nullptr);
  try {
    check(call(&requests_.back()), name_);
  } catch (...) {
    hooks_->run_if_failed();
    throw;
  }
  handles_.push_back(requests_.back());
}

// Where libhdt cannot note the call, as the request is complete or there is no memory, it is made now: who is
// called then waits for the request, or finds it complete.
void Operation::when_requests_end(void (*call)(void*), void* argument) const {
  for (const hdtRequest_t handle : handles_) {
    if (hdtWhenDone(handle, call, argument) != HDT_SUCCESS) call(argument);
  }
}

void Operation::ended(hdtResult_t result) {
  if (result == HDT_SUCCESS || failure_) return;
  try {
    check(result, name_);
  } catch (...) {
    failure_ = std::current_exception();
    failure_code_ = result;
  }
}

// All requests are looked at, also behind one that failed: libhdt may still use their buffers.
bool Operation::test() {
  if (done()) return true;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || done()) return done();
  for (hdtRequest_t& request : requests_) {
    const hdtResult_t result = hdtTest(&request);
    if (result == HDT_IN_PROGRESS) return false;
    ended(result);
  }
  finish(std::move(lock));
  return true;
}

bool Operation::wait(std::optional<Milliseconds> timeout) {
  if (done()) return true;
  const auto end = std::chrono::steady_clock::now() + timeout.value_or(Milliseconds(0));
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!timeout) {
    lock.lock();
  } else if (!lock.try_lock_until(end)) {
    return done();
  }
  if (done()) return true;
  for (hdtRequest_t& request : requests_) {
    int64_t left = -1;
    if (timeout) {
      const auto now = std::chrono::steady_clock::now();
      left = std::max<int64_t>(0, std::chrono::ceil<Milliseconds>(end - now).count());
    }
    const hdtResult_t result = hdtWait(&request, left);
    if (request != nullptr) return false;  // `left` is over
    ended(result);
  }
  finish(std::move(lock));
  return true;
}

void Operation::finish(std::unique_lock<std::timed_mutex> lock) {
  if (copy_out_ && !failure_) {
    try {
      copy_out_();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  const auto dropped = std::exchange(copy_out_, nullptr);
  std::vector<std::function<void()>> callbacks;
  {
    const std::lock_guard guard(callbacks_mutex_);
    done_.store(true, std::memory_order_release);
    callbacks.swap(callbacks_);
  }
  lock.unlock();
  if (failure_code_ != HDT_SUCCESS) hooks_->run_if_failed();
  for (const auto& callback : callbacks) callback();
}

void Operation::when_done(std::function<void()> callback) {
  {
    const std::lock_guard guard(callbacks_mutex_);
    if (!done()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  callback();
}

// --- CompletionThread --------------------------------------------------------------------------------------

// One adopted operation: libhdt's calls count its requests down. Nothing here needs memory or throws, as they
// come from inside libhdt.
struct CompletionThread::Notice {
  std::shared_ptr<State> state;
  std::list<std::shared_ptr<Operation>> operation;
  std::atomic<size_t> left;

  static void count_down(void* argument) {
    auto* const notice = static_cast<Notice*>(argument);
    if (notice->left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    {
      const std::lock_guard lock(notice->state->mutex);
      notice->state->ended.splice(notice->state->ended.end(), notice->operation);
      notice->state->changed.notify_one();
    }
    delete notice;
  }
};

void CompletionThread::start() {
  const std::lock_guard lock(state_->mutex);
  if (thread_.joinable() || state_->closed) return;
  try {
    thread_ = std::thread([state = state_] {
      (void)::pthread_setname_np(::pthread_self(), "hdt-torch");
      run(*state);
    });
  } catch (const std::system_error& error) {
    throw_backend_error(std::string("hdt: the group's completion thread is refused: ") + error.what() +
                        " (see ulimit -u, and pids.max of the cgroup)");
  }
  started_.store(true, std::memory_order_release);
}

// The notice counts one more, so that it is there until all requests know of it.
void CompletionThread::adopt(std::shared_ptr<Operation> operation) {
  std::unique_lock lock(state_->mutex);
  if (state_->closed) {
    lock.unlock();
    operation->wait(std::nullopt);
    return;
  }
  auto* const notice = new Notice{state_, {operation}, operation->requests() + 1};
  ++state_->adopted;
  lock.unlock();
  operation->when_requests_end(&Notice::count_down, notice);
  Notice::count_down(notice);
}

// Without the mutex while operations end: callbacks may begin others, and drop some.
void CompletionThread::run(State& state) {
  std::unique_lock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock, [&] { return !state.ended.empty() || (state.closed && state.adopted == 0); });
    if (state.ended.empty()) return;
    std::list<std::shared_ptr<Operation>> mine;
    mine.swap(state.ended);
    lock.unlock();
    // A thread that waits for the same operation holds its mutex, but not for long.
    for (const auto& operation : mine) operation->wait(std::nullopt);
    const size_t ended = mine.size();
    mine.clear();  // tensors go with them
    lock.lock();
    state.adopted -= ended;
  }
}

void CompletionThread::close() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->changed.notify_one();
  }
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void CompletionThread::forget() {
  if (thread_.joinable()) thread_.detach();
}

// --- Group -------------------------------------------------------------------------------------------------

namespace {

// All groups of the process, for close_all(), and some that are gone. Never destroyed: groups may outlive the
// program's statics.
struct Groups {
  std::mutex mutex;
  std::vector<std::weak_ptr<Group>> all;
};
Groups& groups() {
  static auto* const those = new Groups;
  return *those;
}

}  // namespace

Group::Group(hdtComm_t comm, int rank, int size)
    : comm_(comm),
      rank_(rank),
      size_(size),
      pid_(::getpid()),
      abort_hooks_(std::make_shared<AbortHooks>(comm)) {}

std::shared_ptr<Group> Group::make(hdtComm_t comm, int rank, int size) {
  std::shared_ptr<Group> made(new Group(comm, rank, size));
  const std::lock_guard lock(groups().mutex);
  std::erase_if(groups().all, [](const auto& group) { return group.expired(); });
  groups().all.push_back(made);
  return made;
}

// The other ranks wait for this one's call, so the group fails. In a forked copy libhdt refuses the call.
void Group::start_completion() {
  if (completion_.started() || ::getpid() != pid_) return;
  try {
    completion_.start();
  } catch (...) {
    abort_hooks_->run();
    (void)hdtCommAbort(comm_);
    throw;
  }
}

std::shared_ptr<Operation> Group::operation(const char* name) {
  start_completion();
  auto made = std::make_shared<Operation>(name, abort_hooks_);
  const std::lock_guard lock(begun_mutex_);
  if (begun_.size() >= prune_at_) {
    std::erase_if(begun_, [](const auto& weak) {
      const auto alive = weak.lock();
      return !alive || alive->done();
    });
    prune_at_ = std::max<size_t>(64, 2 * begun_.size());
  }
  begun_.push_back(made);
  return made;
}

// The hook is there before made() is read, and end_with() comes before any() is read, in the one order of all
// such accesses. So an operation that another thread makes meanwhile is seen here or there.
void Group::add_abort_hook(int64_t id, std::function<void()> hook) {
  abort_hooks_->add(id, std::move(hook));
  std::vector<std::weak_ptr<Operation>> begun;
  {
    const std::lock_guard lock(begun_mutex_);
    begun = begun_;
  }
  for (const auto& weak : begun) {
    const auto alive = weak.lock();
    if (alive && alive->made() && !alive->test()) completion_.adopt(alive);
  }
}

void Group::watch_for_hooks(const std::shared_ptr<Operation>& operation) {
  if (abort_hooks_->any() && !operation->test()) completion_.adopt(operation);
}

void Group::abort() {
  abort_hooks_->run();
  check(hdtCommAbort(comm_), "abort");
}

void Group::close() {
  if (closed_.exchange(true)) return;
  if (::getpid() != pid_) return completion_.forget();
  without_python_lock([this] {
    (void)hdtCommDestroy(comm_);
    completion_.close();
    abort_hooks_->clear();
  });
}

bool Group::settle(std::chrono::steady_clock::time_point end) {
  std::vector<std::weak_ptr<Operation>> begun;
  {
    const std::lock_guard lock(begun_mutex_);
    begun.swap(begun_);
  }
  for (const auto& weak : begun) {
    const auto alive = weak.lock();
    const auto now = std::chrono::steady_clock::now();
    const Milliseconds left = std::max(Milliseconds(0), std::chrono::ceil<Milliseconds>(end - now));
    if (alive && !alive->wait(left)) return false;
  }
  return true;
}

void Group::leave(std::chrono::steady_clock::time_point end) {
  if (!settle(end)) {
    abort_hooks_->run();
    (void)hdtCommAbort(comm_);
  }
  close();
}

// Does not wait for the mutex: in a forked copy it may be held by a thread that is not there.
void Group::close_all() {
  std::vector<std::weak_ptr<Group>> all;
  {
    const std::unique_lock lock(groups().mutex, std::try_to_lock);
    if (lock.owns_lock()) all.swap(groups().all);
  }
  const auto end = std::chrono::steady_clock::now() + kLast;
  for (const auto& weak : all) {
    const auto group = weak.lock();
    if (!group || group->closed_ || group->pid_ != ::getpid()) continue;
    group->leave(end);
  }
}

}  // namespace hdt_torch
