// embedded.cc: a Daemon behind the interface that the client library sees, and the configuration that it
// is started with.
#include "daemon/embedded.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/config.h"
#include "base/log.h"
#include "base/unique_fd.h"
#include "daemon/daemon.h"

namespace hdt::daemon {

namespace {

// Ranks of one job that end together have so long, in ms, before one of them takes the daemon over.
constexpr int64_t kQuietMs = 1'000;

// The pid of this process makes the daemon an embedded one.
// Owned by the client library. The daemon's threads end with this object at the latest.
class Embedded : public EmbeddedDaemon {
 public:
  Embedded(Config config, const std::string& job_secret)
      : drain_ms_(config.timeouts.drain_ms),
        daemon_(std::move(config), static_cast<uint32_t>(::getpid()), job_secret) {}
  Status start() { return daemon_.start(); }
  // True: another process goes on with the groups. False: there was nobody, and the daemon has ended for
  // good.
  bool end(const std::string& why) override {
    if (daemon_.leave_to_others(kQuietMs, drain_ms_)) return true;
    daemon_.stop(0, why);
    return false;
  }
  std::string settings() const override { return daemon_.settings(); }

 private:
  int64_t drain_ms_;
  Daemon daemon_;
};

// A configuration from a predecessor's settings. load_config() reads files only, so the text goes through
// a memfd.
Result<Config> config_from(const std::string& settings, const ConfigPairs& flags) {
  const UniqueFd file(::memfd_create("hdt-settings", MFD_CLOEXEC));
  if (!file.valid() ||
      ::write(file.get(), settings.data(), settings.size()) != static_cast<ssize_t>(settings.size()))
    return Status::from_errno("memfd for a daemon's settings", errno);
  ConfigSources sources;
  sources.file = "/proc/self/fd/" + std::to_string(file.get());
  sources.flags = flags;
  return load_config(sources);
}

// Starts one daemon with this configuration. A socket that lies at the path is that of a daemon that
// has ended: the caller holds the lock that proves it (embedded_hosts.h).
Result<std::unique_ptr<EmbeddedDaemon>> start(const std::string& socket, Result<Config> config,
                                              const std::string& job_secret) {
  if (!config.is_ok()) return config.status();
  (void)::unlink(socket.c_str());
  auto daemon = std::make_unique<Embedded>(config.take(), job_secret);
  HDT_RETURN_IF_ERROR(daemon->start());
  return std::unique_ptr<EmbeddedDaemon>(std::move(daemon));
}

}  // namespace

// Each attempt is a whole daemon; one that has failed leaves nothing behind. The last error is returned.
Result<std::unique_ptr<EmbeddedDaemon>> start_embedded(const std::string& socket, const std::string& settings,
                                                       const std::string& job_secret) {
  // 1. As a successor: with the predecessor's settings, at its port, where the other nodes look for it.
  ConfigPairs flags = {{"node.socket", socket}};
  if (!settings.empty()) {
    auto successor = start(socket, config_from(settings, flags), job_secret);
    if (successor.is_ok()) return successor;
    HDT_LOG_WARN("{}: this node's daemon is met at another port than before", successor.status().message());
    // 2. The port may be taken: any other one. Nodes whose daemons end at the same time do not find
    //    this one.
    flags.emplace_back("nics.port", "0");
    successor = start(socket, config_from(settings, flags), job_secret);
    if (successor.is_ok()) return successor;
  }
  // 3. No predecessor, or its settings do not work here: the usual configuration.
  ConfigSources sources;
  sources.environment = config_environment();
  // Several jobs of a user may each have one on this machine: its own socket, any free port.
  flags = {{"node.socket", socket}, {"nics.port", "0"}};
  sources.flags = flags;
  return start(socket, load_config(sources), job_secret);
}

}  // namespace hdt::daemon
