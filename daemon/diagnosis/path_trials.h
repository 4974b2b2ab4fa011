// path_trials.h: tries the paths to data ports of other nodes for hdtctl doctor, in the way that jobs use
// them: the tcp backend with the daemon's options connects, which lets packets of every size pass both
// ways before it reports the connection, and then closes it again.
//
// Trials run on threads of their own with a backend of their own, since a backend belongs to one thread,
// and the engines' backends are busy. So a trial disturbs no group.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <thread>
#include <vector>

#include "transports/transport.h"

namespace hdt::daemon {

// One pair of NICs, and how trying it went.
struct PathTrial {
  // a NIC of this node
  transport::DeviceInfo from;
  // `to`: the address of a data port of the other node; `to_nic`: that port's NIC, by name
  std::string to_nic, to;
  // why there is no connection; "": there was one
  std::string error;
  // TriedPath::narrowed(): why packets had to be smaller than the NIC would allow; "": they had not
  std::string narrowed;
  // TriedPath::largest_packet(), in bytes
  uint32_t largest = 0;
};

// The trial as hdtctl doctor gets it.
nlohmann::json to_json(const PathTrial& trial);

// Tries all paths at once, on the calling thread, for `budget_ms` at most, and fills in their results.
// Ends early when `stop` becomes true.
void try_paths(transport::Backend& backend, std::vector<PathTrial>& paths, int64_t budget_ms,
               const std::atomic<bool>& stop);

// Owns the threads of the trials under way. Used by one thread at a time: Control's. The destructor ends
// the trials and joins their threads.
class PathTrials {
 public:
  using MakeBackend = std::function<Result<std::unique_ptr<transport::Backend>>()>;
  using Then = std::function<void(std::vector<PathTrial>)>;
  PathTrials() = default;
  ~PathTrials();
  PathTrials(const PathTrials&) = delete;
  PathTrials& operator=(const PathTrials&) = delete;

  // Tries the paths on a new thread, and calls `then` there with the results. If four trials are under
  // way already, there are more than 256 paths, or the system refuses the thread, `then` is called at once
  // on the calling thread, and the paths have that as their errors. `make_backend` is called on the new
  // thread. An exception there is the error of all paths.
  void start(MakeBackend make_backend, std::vector<PathTrial> paths, int64_t budget_ms, Then then);

 private:
  struct Work;
  // A thread of trials.
  struct Running {
    std::shared_ptr<Work> work;
    std::thread thread;
  };
  // The body of a thread.
  void run(Work& work) const;
  // Joins the threads that have ended.
  void join_ended();

  std::vector<Running> running_;
  std::atomic<bool> stop_{false};
};

}  // namespace hdt::daemon
