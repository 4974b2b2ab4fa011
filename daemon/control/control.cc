// control.cc: the start and the end of a daemon.
#include "daemon/control/control.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <future>

#include "base/contained.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "base/topology.h"
#include "daemon/control/answers.h"
#include "daemon/control/class_changes.h"
#include "daemon/control/diagnosis.h"
#include "daemon/control/doctor.h"
#include "daemon/control/joins.h"
#include "daemon/control/restarts.h"
#include "daemon/links/own_host.h"
#include "daemon/protocol/version.h"
#include "transports/loader/loader.h"

namespace hdt::daemon {

namespace {

// How long an engine polls before it sleeps. It gives up its core between the polls (sched_yield()).
constexpr int64_t kSpinNs = 50 * kNsPerUs;
// How long a stop waits at most, in ms, until what was sent to other nodes has left.
constexpr int64_t kTellMs = 200;

// The port of the first of these addresses.
// All of a daemon's addresses have the same port if it is configured, and any free one otherwise.
std::string first_port(const std::string& addresses) {
  const std::string first = addresses.substr(0, addresses.find(','));
  return first.substr(first.rfind(':') + 1);
}

// The same limits for each engine's backends and for the control network: each of them counts its own
// connections.
transport::StrangerLimits stranger_limits(const Config& config) {
  return {static_cast<size_t>(config.limits.strangers),
          static_cast<size_t>(config.limits.strangers_per_address)};
}

}  // namespace

// The parts are made later, by make_parts(): most of them need the network and the engines.
ControlParts::ControlParts(Config with, uint32_t host) : config(std::move(with)), host_pid(host) {}

ControlParts::~ControlParts() = default;

// Opens nothing but the epoll: start() can fail, a constructor cannot.
Control::Control(Config config, uint32_t host_pid, std::string job_secret)
    : job_secret_(std::move(job_secret)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      daemon_(std::move(config), host_pid) {}

// For an owner that did not call stop(): calls under way are not waited for then.
Control::~Control() { stop(0, "the daemon ends"); }

// Opens, in this order: identity, the plan of backends and NICs, known measurements, engines, the control
// network.
Status Control::open_devices() {
  HDT_RETURN_IF_ERROR(open_trust());
  daemon_.node.name = daemon_.config.node.name;
  auto plan = make_plan(daemon_.config, transport::module_folders(), daemon_.own_host_only);
  if (!plan.is_ok()) return plan.status();
  daemon_.plan = plan.take();
  say_who_can_be_a_peer();
  if (!daemon_.config.node.state_folder.empty()) {
    measurements_path_ = daemon_.config.node.state_folder + "/measurements.json";
    auto known = load_measurements(measurements_path_);
    if (known.is_ok()) {
      measurements_ = known.take();
    } else {
      HDT_LOG_WARN("{}; it is measured again", known.status().message());
    }
  }
  // Engines: as many as the configuration says, or one for 8 NICs. They start here, and from then on may
  // post to the mailbox; run() handles that later.
  auto topology = Topology::load();
  if (!topology.is_ok()) return topology.status();
  const int cores = topology.value().usable_cores();
  const int engines = engine_threads(daemon_.config, static_cast<int>(daemon_.plan.nics().size()), cores);
  for (int i = 0; i < std::min(engines, static_cast<int>(ipc::kMaxEngines)); ++i) {
    auto engine = make_engine(static_cast<uint32_t>(i));
    Engine& made = *engine;
    daemon_.engines.add(std::move(engine));
    HDT_RETURN_IF_ERROR(made.start());
    daemon_.node.rails.push_back(made.rail_ends());
  }
  daemon_.network = std::make_unique<ControlNetwork>(network_options());
  HDT_RETURN_IF_ERROR(daemon_.network->start());
  daemon_.node.address = daemon_.network->address();
  return Status::ok();
}

// Everything is copied into the options: from start() on the engine lives on its own thread, while the
// configuration here may change with a class.
std::unique_ptr<Engine> Control::make_engine(uint32_t index) {
  EngineOptions options;
  options.index = index;
  options.node = daemon_.node.id;
  options.node_name = daemon_.node.name;
  options.trust = daemon_.trust;
  options.nics = daemon_.plan.nics();
  // The engine calls it on its own thread, also later when a class change brings a new backend. A backend
  // belongs to the thread that made it.
  options.make_backend = [plan = daemon_.plan, security = daemon_.security](const std::string& name) {
    return transport::make_backend(name, plan.options(name), plan.folders(), security);
  };
  options.connect_ms = daemon_.config.timeouts.connect_ms;
  options.strangers = stranger_limits(daemon_.config);
  options.spin_ns = kSpinNs;
  options.restart_ms = daemon_.restart_ms();
  options.host_pid = daemon_.host_pid;
  options.link.checksum = daemon_.config.link.checksum == "crc32c";
  options.link.stall_ns = daemon_.config.link.stall_ms * kNsPerMs;
  options.link.wait_ns = daemon_.config.link.wait_ms * kNsPerMs;
  options.policy_of = policies_of(daemon_.config);
  options.known = measurements_;
  return std::make_unique<Engine>(std::move(options), from_engines_);
}

// It listens on each address once, also where several backends use the NIC.
ControlNetworkOptions Control::network_options() {
  ControlNetworkOptions options;
  options.node_name = daemon_.node.name;
  options.trust = daemon_.trust;
  for (const BackendNic& nic : daemon_.plan.nics()) {
    const auto same = [&](const transport::DeviceInfo& other) { return other.address == nic.info.address; };
    if (std::none_of(options.devices.begin(), options.devices.end(), same))
      options.devices.push_back(nic.info);
  }
  options.port = static_cast<uint16_t>(daemon_.config.nics.port);
  options.connect_ms = daemon_.config.timeouts.connect_ms;
  options.strangers = stranger_limits(daemon_.config);
  options.own_host_only = daemon_.own_host_only;
  options.on_message = [this](ChannelId channel, std::span<const std::byte> message) {
    on_control(channel, message);
  };
  options.on_closed = [this](ChannelId channel, const Status& why) { on_closed(channel, why); };
  return options;
}

// In the order of their dependencies; each of them gets `daemon_`, by which it finds the others. Nothing is
// called before all exist.
void Control::make_parts() {
  // The descriptors of one session: a socket, a pidfd, a page, and an eventfd for each engine.
  const auto engines = static_cast<uint32_t>(daemon_.engines.size());
  daemon_.limits = std::make_unique<UserLimits>(daemon_.config.limits, 3 + static_cast<int64_t>(engines));
  daemon_.joins = std::make_unique<Joins>(daemon_);
  daemon_.maker =
      std::make_unique<GroupMaker>(daemon_.node, daemon_.config, *daemon_.network, *daemon_.joins);
  daemon_.restarts = std::make_unique<Restarts>(daemon_);
  daemon_.rediscovery = std::make_unique<PeerRediscovery>(*daemon_.network, *daemon_.restarts);
  daemon_.inquiries = std::make_unique<Inquiries>(*daemon_.network);
  daemon_.changes = std::make_unique<ClassChanges>(daemon_);
  daemon_.diagnosis = std::make_unique<Diagnosis>(daemon_);
  daemon_.doctor = std::make_unique<Doctor>(daemon_);
  daemon_.answers = std::make_unique<Answers>(daemon_);
  daemon_.sessions = std::make_unique<ClientSessions>(
      ClientSessions::Options{kSoftware, daemon_.node.name, daemon_.host_pid, engines, daemon_.restart_ms(),
                              daemon_.config.security.allow_groups, daemon_.config.limits.hello_ms},
      *daemon_.limits, requests_);
}

// The thread starts last, when everything that it uses exists.
Status Control::start() {
  if (!epoll_.valid()) return Status::from_errno("epoll_create1", errno);
  HDT_RETURN_IF_ERROR(daemon_.mailbox.status());
  HDT_RETURN_IF_ERROR(open_devices());
  make_parts();
  HDT_RETURN_IF_ERROR(daemon_.sessions->listen(daemon_.config.node.socket, epoll_.get()));
  HDT_RETURN_IF_ERROR(watch_descriptor(epoll_.get(), daemon_.mailbox.fd()));
  watch_network();
  daemon_.started_ns = now_ns();
  HDT_LOG_INFO("{} serves {} and {}, {} engine thread(s) {}", kSoftware, daemon_.config.node.socket,
               daemon_.network->address(), daemon_.engines.size(), LogTag{.node = daemon_.node.name});
  auto thread = start_thread("hdt-control", [this] { run(); });
  if (!thread.is_ok()) {
    daemon_.sessions->stop_listening();
    return thread.status();
  }
  thread_ = thread.take();
  return Status::ok();
}

// Called by another thread. It polls while it drains, as that happens once in a daemon's life.
void Control::stop(int64_t drain_ms, const std::string& why) {
  if (thread_.joinable()) {
    // 1. Messages that processes have sent before now are read first, also a last hdtCommDestroy. Then no
    //    new session is accepted.
    std::promise<void> heard;
    daemon_.mailbox.post([this, &heard] {
      (void)contained("the last messages of sessions", [this] { daemon_.sessions->read_all(); });
      daemon_.sessions->stop_listening();
      heard.set_value();
    });
    heard.get_future().wait();
    // 2. Calls under way may finish, until the deadline. 3. All groups fail, here and on the other nodes.
    const Deadline drain = Deadline::after_ms(drain_ms);
    while (!daemon_.engines.ask([](Engine& engine) { return engine.quiet(); }) && !drain.expired())
      ::usleep(10'000);
    daemon_.engines.ask([&](Engine& engine) {
      engine.fail_all(Code::kDaemonLost, why);
      return true;
    });
    // 4. Messages to other nodes leave before the connections close.
    const Deadline told = Deadline::after_ms(kTellMs);
    while (!daemon_.engines.ask([](Engine& engine) { return engine.links_idle(); }) && !told.expired())
      ::usleep(1'000);
    // 5. Sessions end, then the control thread, and at last the engines.
    std::promise<void> closed;
    daemon_.mailbox.post([&] {
      (void)contained("the end of sessions", [&] {
        // A process that uses an embedded daemon and has no rank there finds another daemon when it needs
        // one.
        if (daemon_.host_pid != 0) {
          daemon_.sessions->abandon();
        } else {
          daemon_.sessions->refuse_all(Code::kDaemonLost, why);
        }
      });
      closed.set_value();
    });
    closed.get_future().wait();
    daemon_.stop.store(true, std::memory_order_release);
    daemon_.mailbox.post([] {});
    thread_.join();
  }
  for (const auto& engine : daemon_.engines) engine->stop();
  daemon_.mailbox.close();
}

// Posted, as the configuration belongs to the control thread. The caller learns of the outcome from the
// log.
void Control::reconfigure(Config config) {
  daemon_.mailbox.post([this, config = std::move(config)] { daemon_.changes->read_again(config); });
}

// Where others go on, the daemon ends as if it had been killed: engines close their connections without a
// message, and groups go on with the successor.
bool Control::leave_to_others(int64_t quiet_ms, int64_t drain_ms) {
  if (!thread_.joinable() || !succession_.leave(quiet_ms, drain_ms)) return false;
  thread_.join();
  for (const auto& engine : daemon_.engines) engine->abandon();
  daemon_.mailbox.close();
  HDT_LOG_INFO("this process ends: another one of the node goes on with its daemon {}",
               LogTag{.node = daemon_.node.name});
  return true;
}

// A configuration file for a successor, as text. It has the whole configuration in force, whatever sources
// it came from, since the successor may run with other ones.
std::string Control::settings() const {
  Config config = daemon_.config;
  // The successor listens where the others look for this daemon, and has as many engines as its groups
  // rely on.
  (void)override_config(config,
                        {{"nics.port", first_port(daemon_.network->address())},
                         {"node.threads", std::to_string(daemon_.engines.size())}},
                        "the predecessor's");
  return print_config(config);
}

}  // namespace hdt::daemon
