// operation.h: an operation that libhdt has under way for torch, and the thread that completes operations for
// which nobody waits. Free of torch: its headers cost 15 s a file.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "hdt/hdt.h"

namespace hdt_torch {

using Milliseconds = std::chrono::milliseconds;

// A call that cannot be made, with the reason.
struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws what torch has for the failure of a backend, with this text. Defined where torch is seen.
[[noreturn]] void throw_backend_error(const std::string& text);

// Makes a call that blocks, without Python's lock if this thread holds it: the completion thread needs the
// lock to run, and to drop, callbacks of Python. Defined where Python is seen.
void without_python_lock(const std::function<void()>& call);

// Throws unless `result` is HDT_SUCCESS, with HDT's own words: they name the rank, the operation, the group
// and the cause. To be called in the thread that made the call `what`, as the text is the thread's. A
// deadline that is over is called a timeout, as torch does.
void check(hdtResult_t result, const char* what);

// Functions of the user that are called before a group is given up. They are called once, as soon as a thread
// of this rank finds that the group has failed, or before this rank aborts it. Any thread. The functions are
// called, and destroyed, without a lock held.
class AbortHooks {
 public:
  explicit AbortHooks(hdtComm_t comm) : comm_(comm) {}
  AbortHooks(const AbortHooks&) = delete;
  AbortHooks& operator=(const AbortHooks&) = delete;

  // The hook must not throw. It replaces the one that has the same id.
  void add(int64_t id, std::function<void()> hook);
  void remove(int64_t id);
  void clear();
  // Whether there are any.
  bool any() const { return any_.load(); }
  // Calls them in the order of their ids. Only the first call of run() does anything.
  void run();
  // run(), if the group has failed.
  void run_if_failed();

 private:
  using Hook = std::shared_ptr<const std::function<void()>>;

  const hdtComm_t comm_;
  std::mutex mutex_;
  // Guarded by mutex_.
  std::map<int64_t, Hook> hooks_;
  bool ran_ = false;
  // Whether hooks_ has one; written under mutex_.
  std::atomic<bool> any_{false};
};

// One or several requests of libhdt that make one operation of torch, and what has to happen at their end.
// Shared by its Work and, once nobody waits for it, by the completion thread. From end_with() on all
// functions may be called from any thread; none takes Python's lock.
//
// Whoever finds the last request complete ends the operation: it copies results to where torch wants them,
// lets go of the tensors, and runs the callbacks. Callbacks run without a lock held.
class Operation {
 public:
  // `name` is the call's, for messages. The hooks are those of its group.
  Operation(const char* name, std::shared_ptr<AbortHooks> hooks) : name_(name), hooks_(std::move(hooks)) {}
  // The last owner goes when all requests are complete: until then libhdt uses the buffers.
  ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // To be called by the thread that makes the operation, before anyone else sees it: begins a call of libhdt,
  // which gets the place for its request. Throws Failure if libhdt refuses it; what was begun before goes on.
  void begin(const std::function<hdtResult_t(hdtRequest_t*)>& call);
  // Owns the tensors of the operation. It is called, and destroyed, when all requests are complete, if none
  // failed; only destroyed, if one did.
  void end_with(std::function<void()> copy_out) {
    copy_out_ = std::move(copy_out);
    made_.store(true);
  }
  // end_with() was called.
  bool made() const { return made_.load(); }

  // Looks whether it is complete, without waiting. False also while another thread waits for it.
  bool test();
  // Waits until it is complete, at most `timeout`, without one until libhdt's deadline. False: it goes on.
  bool wait(std::optional<Milliseconds> timeout);
  bool done() const { return done_.load(std::memory_order_acquire); }
  // Why it failed; null while it has not. Constant once done.
  std::exception_ptr failure() const { return done() ? failure_ : nullptr; }
  // libhdt's code for that; HDT_SUCCESS as well if it failed after libhdt was done.
  hdtResult_t failure_code() const { return done() ? failure_code_ : HDT_SUCCESS; }
  // Runs `callback` once the operation is complete: now, if it is.
  void when_done(std::function<void()> callback);
  size_t requests() const { return handles_.size(); }
  // Has `call(argument)` made for each request, once it has ended: hdtWhenDone says what the call may do.
  void when_requests_end(void (*call)(void*), void* argument) const;
  const char* name() const { return name_; }

 private:
  // mutex_ is held. Takes note of how a request ended.
  void ended(hdtResult_t result);
  // The lock is that of mutex_. All requests are complete: ends the operation, and lets go of the lock.
  void finish(std::unique_lock<std::timed_mutex> lock);

  const char* const name_;
  const std::shared_ptr<AbortHooks> hooks_;
  // Held by the thread that tests or waits: only one may pass a request's address to libhdt. A thread that
  // waits holds it for as long.
  std::timed_mutex mutex_;
  std::vector<hdtRequest_t> requests_;
  // The same, but constant after begin(); those that are complete are handles of nothing.
  std::vector<hdtRequest_t> handles_;
  std::function<void()> copy_out_;
  std::atomic<bool> made_{false};
  // Written under mutex_, before done_ (release).
  std::exception_ptr failure_;
  hdtResult_t failure_code_ = HDT_SUCCESS;
  std::atomic<bool> done_{false};
  // Guards callbacks_, and that a callback is either there when done_ is set or sees it.
  std::mutex callbacks_mutex_;
  std::vector<std::function<void()>> callbacks_;
};

// Completes operations for which nobody waits: whose Work was asked for its future, or was dropped. Owned by
// a Group; its thread starts before the group's first operation, and is joined by close(). It sleeps until
// libhdt says that one of them has ended (hdtWhenDone).
class CompletionThread {
 public:
  // Starts no thread.
  CompletionThread() = default;
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;

  // Starts the thread, unless it runs or close() was called. Throws what torch throws for a failed call if
  // the system refuses the thread. Separate from adopt(), which destructors call.
  void start();
  bool started() const { return started_.load(std::memory_order_acquire); }
  // The thread must have been started. After close() the operation is ended at once, as libhdt has ended its
  // requests.
  void adopt(std::shared_ptr<Operation> operation);
  // Returns when all operations are complete and the thread has ended. The caller has called hdtCommDestroy
  // before, which ends them. A callback on the thread itself may call it: then the thread ends behind it.
  void close();
  // Lets go of the thread without a word, in a forked copy, where it does not run.
  void forget();

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    // Guarded by mutex. Operations whose requests have ended, in that order.
    std::list<std::shared_ptr<Operation>> ended;
    // Operations that adopt() has taken and the thread has not ended.
    size_t adopted = 0;
    bool closed = false;
  };
  struct Notice;
  static void run(State& state);

  // Shared with the thread, which outlives this object if it closes itself.
  std::shared_ptr<State> state_ = std::make_shared<State>();
  // The thread runs, or has run.
  std::atomic<bool> started_{false};
  // Guarded by state_->mutex, but for close() and forget(), the last calls.
  std::thread thread_;
};

// A rank's membership in one group of ranks: libhdt's communicator and its completion thread. Shared by the
// process group and its Works. close() is the end of both.
class Group {
 public:
  // Takes `comm` over, which has `size` ranks.
  static std::shared_ptr<Group> make(hdtComm_t comm, int rank, int size);
  ~Group() { close(); }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  hdtComm_t comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  // A new operation of this group. It is known to close_all() until it is done or dropped. Throws
  // if the group has no completion thread and gets none; then the group fails on all ranks.
  std::shared_ptr<Operation> operation(const char* name);
  CompletionThread& completion() { return completion_; }
  // From now on the completion thread looks at this group's operations, so that the hook is called also where
  // nobody waits for the one that fails.
  void add_abort_hook(int64_t id, std::function<void()> hook);
  void remove_abort_hook(int64_t id) { abort_hooks_->remove(id); }
  // Has the completion thread look at an operation that is made, if the group has hooks.
  void watch_for_hooks(const std::shared_ptr<Operation>& operation);
  // Fails the group on all ranks; the hooks are called before.
  void abort();
  // Waits for this rank's operations until `end`, aborts the group if one is under way then, and leaves it.
  void leave(std::chrono::steady_clock::time_point end);
  // Waits for this rank's operations, leaves the group, and joins the completion thread. Only the first call
  // does anything; later calls on comm() fail. In a forked copy, which is no rank, it does nothing. Where a
  // destructor calls it with Python's lock held, it lets go of the lock meanwhile.
  void close();
  // For the end of the interpreter: closes all groups that there are. Operations that are not complete, for
  // which nobody will wait any more, have kLast; then their group is aborted, as if this rank had failed.
  static void close_all();

 private:
  static constexpr Milliseconds kLast{5'000};

  Group(hdtComm_t comm, int rank, int size);

  void start_completion();
  // Whether all operations were complete by `end`.
  bool settle(std::chrono::steady_clock::time_point end);

  const hdtComm_t comm_;
  const int rank_;
  const int size_;
  const int pid_;
  // Shared with the operations, which may be done later than the group.
  const std::shared_ptr<AbortHooks> abort_hooks_;
  std::atomic<bool> closed_{false};
  // Guards begun_: operations that may not be complete. Those that are go when the list has doubled.
  std::mutex begun_mutex_;
  std::vector<std::weak_ptr<Operation>> begun_;
  size_t prune_at_ = 64;
  CompletionThread completion_;
};

}  // namespace hdt_torch
