// path_trials.cc: see path_trials.h.
#include "daemon/diagnosis/path_trials.h"

#include <poll.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/contained.h"
#include "base/start_thread.h"
#include "transports/tried_path.h"

namespace hdt::daemon {

namespace {

using transport::Completion;

// Limits of what other nodes and users may make a daemon do at a time.
constexpr size_t kMostRunning = 4;
constexpr size_t kMostTrials = 256;
// How often, in ms, a trial checks whether the daemon ends.
constexpr int64_t kStopLookMs = 50;

// All paths have the same error.
void fail_all(std::vector<PathTrial>& paths, const std::string& why) {
  for (PathTrial& path : paths) path.error = why;
}

}  // namespace

// An empty error: the path works. `narrowed` says what the backend has found out about large packets on it.
nlohmann::json to_json(const PathTrial& trial) {
  return {{"from_nic", trial.from.name}, {"from", trial.from.address},
          {"to_nic", trial.to_nic},      {"to", trial.to},
          {"error", trial.error},        {"narrowed", trial.narrowed},
          {"largest", trial.largest}};
}

// Runs on a thread of its own, with a backend of its own: nothing of the daemon's connections is touched.
// No handshake of daemons follows, so the other daemon sees a connection that is closed at once.
void try_paths(transport::Backend& backend, std::vector<PathTrial>& paths, int64_t budget_ms,
               const std::atomic<bool>& stop) {
  std::map<std::string, std::unique_ptr<transport::Device>> devices;  // by own address
  // The connections that have not ended. Pointers into `paths` are good, as it does not grow.
  std::map<transport::Connection*, PathTrial*> open;
  // 1. Open one device per NIC and begin all connections. Until it is connected, a path's error is the
  //    one that it will have if nothing more happens.
  for (PathTrial& path : paths) {
    // A NIC that cannot be opened is tried again for its next path, and fails with the same error.
    auto& device = devices[path.from.address];
    if (device == nullptr) {
      auto opened = backend.open(path.from);
      path.error = opened.status().message();
      if (!opened.is_ok()) continue;
      device = opened.take();
    }
    auto connection = device->connect(path.to, budget_ms);
    path.error = connection.is_ok() ? "no answer within " + std::to_string(budget_ms) + " ms"
                                    : connection.status().message();
    if (connection.is_ok()) open[connection.value()] = &path;
  }
  // Entries of NICs that could not be opened.
  std::erase_if(devices, [](const auto& entry) { return entry.second == nullptr; });
  // 2. Wait. A connection that is up is closed at once; its kClosed ends the trial. One that is open at
  //    the end closes with its device.
  const Deadline deadline = Deadline::after_ms(budget_ms);
  std::vector<Completion> completions;
  while (!open.empty() && !deadline.expired() && !stop.load(std::memory_order_acquire)) {
    std::vector<pollfd> fds;
    fds.reserve(devices.size());
    for (auto& [address, device] : devices) fds.push_back({device->event_fd(), POLLIN, 0});
    // A short sleep, so that `stop` is noticed.
    ::poll(fds.data(), fds.size(),
           static_cast<int>(std::min<int64_t>(kStopLookMs, deadline.poll_timeout_ms())));
    for (auto& [address, device] : devices) {
      completions.clear();
      // Completions are handled as the engine does it: close(), and release() after kClosed.
      device->poll(completions);
      for (const Completion& completion : completions) {
        const auto found = open.find(completion.connection);
        if (found == open.end()) continue;
        PathTrial& path = *found->second;
        if (completion.kind == Completion::Kind::kConnected) {
          path.error.clear();
          if (const auto* tried = dynamic_cast<const transport::TriedPath*>(completion.connection)) {
            path.narrowed = tried->narrowed();
            path.largest = tried->largest_packet();
          }
          completion.connection->close();
        } else if (completion.kind == Completion::Kind::kClosed) {
          // It was never up: the reason why it was closed is the result.
          if (!path.error.empty()) path.error = completion.error.message();
          device->release(completion.connection);
          open.erase(found);
        }
      }
    }
  }
}

// The work of one thread, which its entry in `running_` shares. Until `done` is set, only the thread uses the
// other fields.
struct PathTrials::Work {
  MakeBackend make_backend;
  std::vector<PathTrial> paths;
  int64_t budget_ms;
  Then then;
  // The thread sets it as its last step; join() then returns at once.
  std::atomic<bool> done{false};
};

// The threads use what their owner holds, so it waits for them.
PathTrials::~PathTrials() {
  // Trials look at stop_ every kStopLookMs, so this takes little longer. Their `then` may still be called.
  stop_.store(true, std::memory_order_release);
  for (Running& running : running_) running.thread.join();
}

// Never waits: a thread is joined only when it has reported that it is done.
void PathTrials::join_ended() {
  std::erase_if(running_, [](Running& running) {
    const bool done = running.work->done.load(std::memory_order_acquire);
    if (done) running.thread.join();
    return done;
  });
}

// Exceptions end here, as nothing else catches them on this thread. The asker gets an answer in any case.
void PathTrials::run(Work& work) const {
  (void)contained(
      "trying paths",
      [&] {
        auto backend = work.make_backend();
        if (!backend.is_ok()) return fail_all(work.paths, backend.status().message());
        try_paths(*backend.value(), work.paths, work.budget_ms, stop_);
      },
      [&](const std::string& why) {
        // First a text that needs no memory: a path without an error would count as one that works.
        fail_all(work.paths, "not tried");
        fail_all(work.paths, "not tried: " + why);
      });
  (void)contained("handing on the results of trials", [&] { work.then(std::move(work.paths)); });
  work.done.store(true, std::memory_order_release);
}

// Limited, since each trial is a thread and each of its paths a connection, and other nodes may ask for
// them. A path beyond the limit, or beyond one of the system's, is answered at once, as not tried.
void PathTrials::start(MakeBackend make_backend, std::vector<PathTrial> paths, int64_t budget_ms, Then then) {
  // Threads that have ended are joined here, at the next start, or by the destructor.
  join_ended();
  if (running_.size() >= kMostRunning || paths.size() > kMostTrials) {
    fail_all(paths, paths.size() > kMostTrials
                        ? "not tried: more than " + std::to_string(kMostTrials) + " pairs of NICs"
                        : "not tried: other trials are under way, ask again");
    return then(std::move(paths));
  }
  const std::shared_ptr<Work> work(
      new Work{std::move(make_backend), std::move(paths), budget_ms, std::move(then)});
  // The place of the thread is there before the thread is: without an owner it would end the process.
  running_.reserve(running_.size() + 1);
  auto thread = start_thread("hdt-trials", [this, work] { run(*work); });
  if (!thread.is_ok()) {
    fail_all(work->paths, "not tried: " + thread.status().message());
    return work->then(std::move(work->paths));
  }
  running_.push_back({work, thread.take()});
}

}  // namespace hdt::daemon
