#include "daemon/embedded.h"

#include <unistd.h>

#include "base/config.h"
#include "daemon/daemon.h"

namespace hdt::daemon {

namespace {

class Embedded : public EmbeddedDaemon {
 public:
  explicit Embedded(Config config) : daemon_(std::move(config), static_cast<uint32_t>(::getpid())) {}
  Status start() { return daemon_.start(); }
  bool wait_until_unused(int64_t timeout_ms) override { return daemon_.wait_until_unused(timeout_ms); }
  size_t foreign_sessions() const override { return daemon_.foreign_sessions(); }
  void stop(const std::string& why) override { daemon_.stop(0, why); }

 private:
  Daemon daemon_;
};

}  // namespace

Result<std::unique_ptr<EmbeddedDaemon>> start_embedded(const std::string& socket) {
  ConfigSources sources;
  sources.environment = config_environment();
  // Several jobs of a user may each have one on this machine: its own socket, any free port.
  sources.flags = {{"node.socket", socket}, {"nics.port", "0"}};
  auto config = load_config(sources);
  if (!config.is_ok()) return config.status();
  auto daemon = std::make_unique<Embedded>(config.take());
  HDT_RETURN_IF_ERROR(daemon->start());
  return std::unique_ptr<EmbeddedDaemon>(std::move(daemon));
}

}  // namespace hdt::daemon
