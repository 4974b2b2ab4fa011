// path_trials.h: tries ways to the data ports of other nodes as a job uses them, for hdtctl doctor: the tcp
// backend with the daemon's options connects, which lets packets of every size pass both ways before it says
// so, and closes again. On threads of its own, as a backend belongs to one thread and the engines' work: a
// trial disturbs no group.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "transports/transport.h"

namespace hdt::daemon {

struct PathTrial {
  transport::DeviceInfo from;  // a NIC of this node
  std::string to_nic, to;      // to: the address of a data port
  std::string error;           // why there is no connection; "": there was one
  std::string narrowed;        // TriedPath::narrowed()
  uint32_t largest = 0;        // TriedPath::largest_packet()
};

nlohmann::json to_json(const PathTrial& trial);

// All at once, in `budget_ms` at most. Ends early where `stop` becomes true.
void try_paths(transport::Backend& backend, std::vector<PathTrial>& paths, int64_t budget_ms,
               const std::atomic<bool>& stop);

// Owns the threads; one thread at a time uses it. Its destructor ends trials that are under way.
class PathTrials {
 public:
  using MakeBackend = std::function<Result<std::unique_ptr<transport::Backend>>()>;
  using Then = std::function<void(std::vector<PathTrial>)>;
  ~PathTrials();

  // Calls `then`, on another thread, when all have been tried. Where too many trials are under way, or there
  // are too many paths, on this one, with that as their errors.
  void start(MakeBackend make_backend, std::vector<PathTrial> paths, int64_t budget_ms, Then then);

 private:
  struct Running {
    std::shared_ptr<std::atomic<bool>> done;
    std::thread thread;
  };
  void join_ended();

  std::vector<Running> running_;
  std::atomic<bool> stop_{false};
};

}  // namespace hdt::daemon
