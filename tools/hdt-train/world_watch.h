// world_watch.h: notices a loss at once, wherever this rank waits (--elastic).
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "base/status.h"
#include "hdt/hdt.hpp"
#include "training/checkpoint/census.h"
#include "training/engine/messenger.h"

namespace hdt::tools {

// A thread that looks whether the world has failed. If so, this rank tells the others that it lives, and its
// operations in all groups end: one of them may wait for a rank that hangs, in a group that has not failed.
class WorldWatch {
 public:
  // All must outlive the object. kSystem: a limit refuses the thread.
  static Result<std::unique_ptr<WorldWatch>> start(Communicator& world, training::Census& census,
                                                   training::Messenger& messenger);
  ~WorldWatch();
  WorldWatch(const WorldWatch&) = delete;
  WorldWatch& operator=(const WorldWatch&) = delete;

 private:
  WorldWatch(Communicator& world, training::Census& census, training::Messenger& messenger)
      : world_(world), census_(census), messenger_(messenger) {}
  void run();

  Communicator& world_;
  training::Census& census_;
  training::Messenger& messenger_;
  std::mutex mutex_;  // of both below
  std::condition_variable changed_;
  bool ends_ = false;
  std::thread thread_;  // ended by the destructor
};

}  // namespace hdt::tools
