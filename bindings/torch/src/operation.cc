// operation.cc: how operations end, and who waits for those that nobody else waits for. See operation.h.
#include "operation.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace hdt_torch {

void check(hdtResult_t result, const char* what) {
  if (result == HDT_SUCCESS) return;
  const std::string text = hdtGetLastError();
  throw_backend_error(std::string("hdt: ") + what + ": " +
                      (result == HDT_ERR_TIMEOUT ? "the timeout is over: " : "") +
                      (text.empty() ? hdtGetErrorString(result) : text));
}

// --- Operation ---------------------------------------------------------------------------------------------

void Operation::begin(const std::function<hdtResult_t(hdtRequest_t*)>& call) {
  requests_.push_back(nullptr);
  check(call(&requests_.back()), name_);
}

void Operation::ended(hdtResult_t result) {
  if (result == HDT_SUCCESS || failure_) return;
  try {
    check(result, name_);
  } catch (...) {
    failure_ = std::current_exception();
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

void CompletionThread::adopt(std::shared_ptr<Operation> operation) {
  {
    const std::lock_guard lock(state_->mutex);
    if (!state_->closed) {
      state_->waiting.push_back(std::move(operation));
      if (!thread_.joinable()) thread_ = std::thread([state = state_] { run(*state); });
      state_->changed.notify_one();
      return;
    }
  }
  operation->wait(std::nullopt);
}

void CompletionThread::run(State& state) {
  for (;;) {
    std::list<std::shared_ptr<Operation>> mine;
    {
      std::unique_lock lock(state.mutex);
      state.changed.wait(lock, [&] { return state.closed || !state.waiting.empty(); });
      if (state.waiting.empty()) return;
      mine = state.waiting;
    }
    // Without the mutex: callbacks may begin operations, and drop others.
    size_t completed = 0;
    for (const auto& operation : mine) completed += operation->test() ? 1 : 0;
    if (completed == 0) mine.front()->wait(kLook);
    std::list<std::shared_ptr<Operation>> dropped;  // outside of the lock, as tensors go with them
    const std::lock_guard lock(state.mutex);
    for (auto it = state.waiting.begin(); it != state.waiting.end();) {
      const auto next = std::next(it);
      if ((*it)->done()) dropped.splice(dropped.end(), state.waiting, it);
      it = next;
    }
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

Group::Group(hdtComm_t comm, int rank, int size) : comm_(comm), rank_(rank), size_(size), pid_(::getpid()) {}

std::shared_ptr<Group> Group::make(hdtComm_t comm, int rank, int size) {
  std::shared_ptr<Group> made(new Group(comm, rank, size));
  const std::lock_guard lock(groups().mutex);
  std::erase_if(groups().all, [](const auto& group) { return group.expired(); });
  groups().all.push_back(made);
  return made;
}

std::shared_ptr<Operation> Group::operation(const char* name) {
  auto made = std::make_shared<Operation>(name);
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

void Group::abort() { check(hdtCommAbort(comm_), "abort"); }

void Group::close() {
  if (closed_.exchange(true)) return;
  if (::getpid() != pid_) return completion_.forget();
  (void)hdtCommDestroy(comm_);
  completion_.close();
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
    if (!group->settle(end)) (void)hdtCommAbort(group->comm_);
    group->close();
  }
}

}  // namespace hdt_torch
