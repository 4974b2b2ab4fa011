// world_watch.cc: looks twenty times a second, which costs a read of shared memory each.
#include "tools/hdt-train/world_watch.h"

#include <chrono>
#include <utility>

#include "base/start_thread.h"

namespace hdt::tools {

Result<std::unique_ptr<WorldWatch>> WorldWatch::start(Communicator& world, training::Census& census,
                                                      training::Messenger& messenger) {
  std::unique_ptr<WorldWatch> watch(new WorldWatch(world, census, messenger));
  Result<std::thread> thread = start_thread("hdt-watch", [watch = watch.get()] { watch->run(); });
  if (!thread.is_ok()) return thread.status();
  watch->thread_ = thread.take();
  return watch;
}

WorldWatch::~WorldWatch() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WorldWatch::run() {
  constexpr auto kLook = std::chrono::milliseconds(50);
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kLook, [this] { return ends_; })) {
    hdtResult_t failure = HDT_SUCCESS;
    if (hdtCommGetAsyncError(world_.get(), &failure) != HDT_SUCCESS || failure == HDT_SUCCESS) continue;
    // Without a thread for it the training thread does so later.
    (void)census_.begin();
    messenger_.abort();
    return;
  }
}

}  // namespace hdt::tools
