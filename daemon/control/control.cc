#include "daemon/control/control.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <future>

#include "base/contained.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "base/topology.h"
#include "daemon/links/own_host.h"
#include "daemon/protocol/version.h"
#include "transports/loader/loader.h"

namespace hdt::daemon {

namespace {

// How long an engine polls before it sleeps. It gives up its core between the polls (sched_yield()).
constexpr int64_t kSpinNs = 50 * kNsPerUs;
// How long a stop waits at most, in ms, until what was sent to other nodes has left.
constexpr int64_t kTellMs = 200;

}  // namespace

Control::Control(Config config, uint32_t host_pid, std::string job_secret)
    : config_(std::move(config)),
      configured_(config_),
      host_pid_(host_pid),
      job_secret_(std::move(job_secret)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

Control::~Control() { stop(0, "the daemon ends"); }

// Opens, in this order: identity, the plan of backends and NICs, known measurements, engines, the control
// network.
Status Control::open_devices() {
  HDT_RETURN_IF_ERROR(open_trust());
  node_.name = config_.node.name;
  auto plan = make_plan(config_, transport::module_folders(), own_host_only_);
  if (!plan.is_ok()) return plan.status();
  plan_ = plan.take();
  opened_ = plan_.nics();
  say_who_can_be_a_peer();
  if (!config_.node.state_folder.empty()) {
    auto known = load_measurements(measurements_path());
    if (known.is_ok()) {
      measurements_ = known.take();
    } else {
      HDT_LOG_WARN("{}; it is measured again", known.status().message());
    }
  }
  // Engines: as many as the configuration says, or one for 8 NICs. They start here, and from then on may
  // post to the mailbox; run() handles that later. Their callbacks run on the engines' threads, so each
  // only posts.
  auto topology = Topology::load();
  if (!topology.is_ok()) return topology.status();
  const int cores = topology.value().usable_cores();
  const transport::StrangerLimits strangers{static_cast<size_t>(config_.limits.strangers),
                                            static_cast<size_t>(config_.limits.strangers_per_address)};
  const int engines = engine_threads(config_, static_cast<int>(plan_.nics().size()), cores);
  for (int i = 0; i < std::min(engines, static_cast<int>(ipc::kMaxEngines)); ++i) {
    EngineOptions options;
    options.index = static_cast<uint32_t>(i);
    options.node = node_.id;
    options.node_name = node_.name;
    options.trust = trust_;
    options.nics = plan_.nics();
    options.make_backend = [plan = plan_, security = security_](const std::string& name) {
      return transport::make_backend(name, plan.options(name), plan.folders(), security);
    };
    options.connect_ms = config_.timeouts.connect_ms;
    options.strangers = strangers;
    options.spin_ns = kSpinNs;
    options.restart_ms = restart_ms();
    options.host_pid = host_pid_;
    options.link.checksum = config_.link.checksum == "crc32c";
    options.link.stall_ns = config_.link.stall_ms * kNsPerMs;
    options.link.wait_ns = config_.link.wait_ms * kNsPerMs;
    options.policy_of = policies_of(config_);
    options.known = measurements_;
    engines_.push_back(std::make_unique<Engine>(std::move(options), from_engines_));
    HDT_RETURN_IF_ERROR(engines_.back()->start());
    node_.rails.push_back(engines_.back()->rail_ends());
  }
  // The control network listens on each address once, also where several backends use the NIC.
  ControlNetworkOptions options;
  options.node_name = node_.name;
  options.trust = trust_;
  for (const BackendNic& nic : plan_.nics()) {
    const auto same = [&](const transport::DeviceInfo& other) { return other.address == nic.info.address; };
    if (std::none_of(options.devices.begin(), options.devices.end(), same))
      options.devices.push_back(nic.info);
  }
  options.port = static_cast<uint16_t>(config_.nics.port);
  options.connect_ms = config_.timeouts.connect_ms;
  options.strangers = strangers;
  options.own_host_only = own_host_only_;
  options.on_message = [this](ChannelId channel, std::span<const std::byte> message) {
    on_control(channel, message);
  };
  options.on_closed = [this](ChannelId channel, const Status& why) {
    // Called again if one of the four throws, so each of them may get the same end twice.
    reply(rendezvous_.on_closed(channel));
    maker_->on_closed(channel, why);
    rediscovery_->on_closed(channel);
    inquiries_->on_closed(channel, why);
  };
  network_ = std::make_unique<ControlNetwork>(std::move(options));
  HDT_RETURN_IF_ERROR(network_->start());
  node_.address = network_->address();
  return Status::ok();
}

// The thread starts last, when everything that it uses exists.
Status Control::start() {
  if (!epoll_.valid()) return Status::from_errno("epoll_create1", errno);
  HDT_RETURN_IF_ERROR(mailbox_.status());
  HDT_RETURN_IF_ERROR(open_devices());
  // The descriptors of one session: a socket, a pidfd, a page, and an eventfd for each engine.
  limits_ = std::make_unique<UserLimits>(config_.limits, 3 + static_cast<int64_t>(engines_.size()));
  maker_ = std::make_unique<GroupMaker>(node_, config_, group_services());
  rediscovery_ = std::make_unique<PeerRediscovery>(rediscovery_services());
  inquiries_ = std::make_unique<Inquiries>(
      Inquiries::Services{[this](const std::string& address) { return network_->dial(address); },
                          [this](ChannelId channel, const ControlMessage& m) { send(channel, m); },
                          [this](ChannelId channel) { network_->finish(channel); }});
  sessions_ = std::make_unique<ClientSessions>(
      ClientSessions::Options{kSoftware, node_.name, host_pid_, static_cast<uint32_t>(engines_.size()),
                              restart_ms(), config_.security.allow_groups, config_.limits.hello_ms},
      *limits_, *this);
  HDT_RETURN_IF_ERROR(sessions_->listen(config_.node.socket, epoll_.get()));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = mailbox_.fd();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, mailbox_.fd(), &event);
  watch_network();
  started_ns_ = now_ns();
  HDT_LOG_INFO("{} serves {} and {}, {} engine thread(s) {}", kSoftware, config_.node.socket,
               network_->address(), engines_.size(), LogTag{.node = node_.name});
  auto thread = start_thread("hdt-control", [this] { run(); });
  if (!thread.is_ok()) {
    sessions_->stop_listening();
    return thread.status();
  }
  thread_ = thread.take();
  return Status::ok();
}

// A descriptor that was closed has left the epoll set by itself, and its number may have been given again
// since. So all are added whenever any has changed; those that are in the set already answer EEXIST.
void Control::watch_network() {
  if (watched_ == network_->device_changes()) return;
  watched_ = network_->device_changes();
  for (int fd : network_->fds()) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event);
  }
}

// The earliest of all timers whose work work() does.
int Control::sleep_ms() const {
  Deadline next = Deadline::earlier(reload_at_, change_ ? change_->until : Deadline::never());
  next = Deadline::earlier(next, sessions_->next_time());
  for (const auto& time : {network_->next_time(), maker_->next_time(), inquiries_->next_time(),
                           rediscovery_->next_time(), rendezvous_.next_time()}) {
    if (time) next = Deadline::earlier(next, *time);
  }
  return next.poll_timeout_ms();
}

void Control::reply(const std::vector<Rendezvous::Reply>& replies) {
  for (const auto& [to, message] : replies) send(to, message);
}

void Control::send(ChannelId channel, const ControlMessage& message) {
  (void)contained(
      "a control message", [&] { network_->send(channel, encode(message)); },
      [&](const std::string&) { network_->give_up(channel); });
}

void Control::on_control(ChannelId channel, std::span<const std::byte> bytes) {
  const ControlMessage message = decode_control(bytes);
  if (const auto* join = std::get_if<Join>(&message)) {
    on_join_message(channel, *join);
  } else if (const auto* cancel = std::get_if<Cancel>(&message)) {
    reply(rendezvous_.on_cancel(channel, *cancel));
  } else if (const auto* membership = std::get_if<Membership>(&message)) {
    maker_->on_membership(channel, *membership);
  } else if (const auto* outcome = std::get_if<Outcome>(&message)) {
    // The coordinator's own node is connected to itself like any other, so both may be meant: an Outcome
    // for the coordinator, or one from it. Each ignores what is not for it.
    reply(rendezvous_.on_outcome(channel, *outcome));
    maker_->on_outcome(channel, *outcome);
  } else if (const auto* inquiry = std::get_if<Inquiry>(&message)) {
    on_inquiry(channel, *inquiry);
  } else if (const auto* told = std::get_if<Reply>(&message)) {
    inquiries_->on_reply(channel, *told);
  } else if (const auto* word = std::get_if<Successor>(&message)) {
    on_successor(channel, *word);
  } else if (const auto* known = std::get_if<SuccessorReply>(&message)) {
    // A daemon answers for its own node only.
    if (network_->is_from(channel, known->node)) rediscovery_->on_successor_reply(channel, *known);
  } else {
    HDT_LOG_WARN("a malformed control message was ignored {}", LogTag{.node = node_.name});
  }
}

// Engines are reached through their mailboxes only. Answers to joins are contained here, since a loop
// over all ranks of a group calls them.
GroupMaker::Services Control::group_services() {
  GroupMaker::Services services;
  services.dial = [this](const std::string& address, std::optional<bool> self) {
    return network_->dial(address, self);
  };
  services.send = [this](ChannelId channel, const ControlMessage& m) { send(channel, m); };
  services.give_up = [this](ChannelId channel) { network_->give_up(channel); };
  services.rails_for = [this](const std::string& group_class) {
    return plan_.ends_for(group_class, node_.rails);
  };
  services.finish = [this](ChannelId channel) { network_->finish(channel); };
  services.host = [this](const HostedPlace& place) {
    return network_->host_place(place.addresses, place.on_nics);
  };
  services.leave = [this](const HostedPlace& place) {
    network_->leave_place(place.addresses, place.on_nics);
    if (place.claim != nullptr) late_places_.emplace_back(Deadline::after_ms(kLateMs), place.claim);
  };
  services.create = [this](uint32_t engine, GroupSpec spec) {
    say_who_can_join(spec.nodes);
    Engine* owner = engines_[engine].get();
    spec.ends_with_host = host_pid_ != 0 && !others_join();
    owner->post([owner, shared = std::make_shared<GroupSpec>(std::move(spec))] {
      owner->create_group(std::move(*shared));
    });
  };
  services.claim = [this](uint32_t uid, UserLimits::What what) { return limits_->claim(uid, what); };
  services.post = [this](std::function<void()> work) { mailbox_.post(std::move(work)); };
  services.fail = [this](uint32_t engine, uint64_t group, const Outcome& outcome) {
    Engine* owner = engines_[engine].get();
    owner->post(
        [owner, group, outcome] { owner->fail_group(group, outcome.code, outcome.rank, outcome.text); });
  };
  services.joined = [this](const LocalJoin& join, const MadeGroup& made, uint32_t local) {
    on_joined(join, made, local);
  };
  services.lost = [this](const MadeGroup& made, uint32_t local) { lose_seat(made, local); };
  services.refused = [this](const LocalJoin& join, const Status& why) {
    joining_.erase({join.session, join.request.request});
    const auto answer_it = [&] {
      ipc::Joined answer;
      answer.request = join.request.request;
      answer.code = why.code();
      answer.text = why.message();
      sessions_->send(join.session, ipc::encode(answer));
    };
    (void)contained("the answer to a join", answer_it,
                    [&](const std::string&) { sessions_->hang_up(join.session); });
  };
  return services;
}

void Control::on_joined(const LocalJoin& join, const MadeGroup& made, uint32_t local) {
  (void)contained(
      "a seat in a group", [&] { take_seat(join, made, local); },
      [&](const std::string& why) {
        (void)contained("a seat that is lost", [&] { lose_seat(made, local); });
        const auto refuse = [&] {
          sessions_->refuse(join.session, Code::kInternal,
                            "the daemon could not give a rank its seat: " + why);
        };
        (void)contained("the refusal of a session", refuse,
                        [&](const std::string&) { sessions_->hang_up(join.session); });
      });
}

// The seat goes to session 0, which does not exist. The engine then treats the rank as failed, so that
// nobody waits for it.
void Control::lose_seat(const MadeGroup& made, uint32_t local) {
  Engine* engine = engines_[made.engine].get();
  engine->post([engine, id = made.id, local] { engine->sessions().attach(0, 0, id, local); });
}

void Control::take_seat(const LocalJoin& join, const MadeGroup& made, uint32_t local) {
  // The engine is informed first, with the session's handle or without a session: either way the seat's fate
  // is known there. A process whose session has ended meanwhile gets no answer.
  std::shared_ptr<UserLimits::Claim> claim;
  if (auto held = joining_.extract({join.session, join.request.request}))
    claim = std::move(held.mapped().claim);
  Engine* engine = engines_[made.engine].get();
  ClientSession* client = sessions_->find(join.session);
  const uint32_t handle = client != nullptr ? client->free_handle() : 0;
  engine->post([engine, session = join.session, handle, id = made.id, local] {
    engine->sessions().attach(session, handle, id, local);
  });
  if (client == nullptr) return;
  client->seats[handle] = {made.engine, made.id, made.memory, std::move(claim)};
  ipc::Joined answer;
  answer.request = join.request.request;
  answer.handle = handle;
  answer.engine = made.engine;
  answer.local_index = local;
  answer.secret = made.secret;
  const std::array<int, 1> fds = {made.memory->fd()};
  sessions_->send(join.session, ipc::encode(answer), fds);
  if (!limits_->may_log(client->credentials.uid)) return;
  HDT_LOG_INFO("group {} joined by pid {} {}", short_id(made.id), client->credentials.pid,
               LogTag{.group = join.request.group_class,
                      .rank = static_cast<int>(join.request.rank),
                      .node = node_.name});
}

void Control::on_opened(uint64_t session) {
  const ClientSession* client = sessions_->find(session);
  for (auto& engine : engines_) {
    engine->post([e = engine.get(), link = client->link] { e->sessions().add(link); });
  }
}

void Control::on_rendezvous(uint64_t session) {
  // The successor of an embedded daemon listens at the same addresses with another node id, so its id is
  // left out.
  const std::string at = host_pid_ != 0 ? network_->address() : network_->address_with_id();
  sessions_->send(session, ipc::encode_text(ipc::Kind::kRendezvousAt, Code::kSuccess, at));
}

void Control::on_join(uint64_t session, const ipc::JoinRequest& request) {
  // A join is answered exactly once, by its number. Until then joining_ holds it, with the claim for the
  // seat.
  if (leaving_) return ask_successor(session, request.request);
  const PeerCredentials& who = sessions_->find(session)->credentials;
  const std::pair<uint64_t, uint32_t> number{session, request.request};
  auto claim = limits_->claim(who.uid, UserLimits::What::kSeats);
  if (!claim.is_ok() || joining_.contains(number)) {
    ipc::Joined answer;
    answer.request = request.request;
    answer.code = claim.is_ok() ? Code::kInvalidUsage : claim.status().code();
    answer.text = claim.is_ok() ? "a join with this request's number is under way" : claim.status().message();
    sessions_->send(session, ipc::encode(answer));
    return;
  }
  joining_[number] = {request, std::make_shared<UserLimits::Claim>(claim.take())};
  // From here GroupMaker answers, through its services `joined` and `refused`.
  maker_->on_join({session, request, static_cast<uint32_t>(who.pid), who.uid});
}

void Control::on_notice(uint64_t session, ipc::Kind kind, const ipc::GroupNotice& notice) {
  ClientSession* client = sessions_->find(session);
  const auto seat = client->seats.find(notice.handle);
  if (seat == client->seats.end()) return;
  // A group fails once. A process that reports it again and again keeps nobody busy.
  if (kind == ipc::Kind::kDeadline && std::exchange(seat->second.told_deadline, true)) return;
  if (kind == ipc::Kind::kFail && std::exchange(seat->second.told_failure, true)) return;
  if (kind == ipc::Kind::kDeadline) return on_deadline(session, seat->second, notice);
  Engine* engine = engines_[seat->second.engine].get();
  engine->post([engine, session, kind, notice] {
    switch (kind) {
      case ipc::Kind::kLeave:
        return engine->sessions().leave(session, notice.handle);
      default:
        return engine->sessions().fail(session, notice.handle, notice.code, notice.rank, notice.text);
    }
  });
  if (kind == ipc::Kind::kLeave) sessions_->end_seat(*client, notice.handle);
}

void Control::on_shared(uint64_t session, uint64_t number, const SharedBlock& block) {
  for (auto& engine : engines_) {
    engine->post([e = engine.get(), session, number, handle = block.handle, memory = block.memory] {
      e->sessions().add_memory(session, number, handle, memory);
    });
  }
}

void Control::on_unshared(uint64_t number) {
  for (auto& engine : engines_) {
    engine->post([e = engine.get(), number] { e->sessions().remove_memory(number); });
  }
}

// Memory is given only to processes of the same user that are in the group in which its owner uses it.
// The answer does not reveal whether the memory exists.
void Control::on_open(uint64_t session, const ipc::MemoryRequest& request) {
  const ClientSession* asker = sessions_->find(session);
  const auto seat = asker->seats.find(request.handle);
  std::shared_ptr<SharedMemory> memory;
  const ClientSession* owner = sessions_->owner_of(request.memory);
  if (owner != nullptr && seat != asker->seats.end() && owner->credentials.uid == asker->credentials.uid) {
    const SharedBlock& block = owner->memories.at(request.memory);
    const auto of_owner = owner->seats.find(block.handle);
    if (of_owner != owner->seats.end() && of_owner->second.same_group(seat->second)) memory = block.memory;
  }
  ipc::MemoryAnswer answer{request.request, Code::kSuccess, "", request.memory};
  if (memory == nullptr) {
    answer.code = Code::kInvalidUsage;
    answer.text = "no rank of the group shares memory " + std::to_string(request.memory);
    sessions_->send(session, ipc::encode(answer));
    return;
  }
  const std::array<int, 1> fds = {memory->fd()};
  sessions_->send(session, ipc::encode(answer), fds);
}

void Control::on_gone(uint64_t session, const std::string& how) {
  std::erase_if(joining_, [session](const auto& entry) { return entry.first.first == session; });
  maker_->on_session_gone(session, how);
  for (auto& engine : engines_) {
    engine->post([e = engine.get(), session, how] { e->sessions().lost(session, how); });
  }
}

// Called by another thread. It polls while it drains, as that happens once in a daemon's life.
void Control::stop(int64_t drain_ms, const std::string& why) {
  if (thread_.joinable()) {
    // 1. Messages that processes have sent before now are read first, also a last hdtCommDestroy. Then no
    //    new session is accepted.
    std::promise<void> heard;
    mailbox_.post([this, &heard] {
      (void)contained("the last messages of sessions", [this] { sessions_->read_all(); });
      sessions_->stop_listening();
      heard.set_value();
    });
    heard.get_future().wait();
    // 2. Calls under way may finish, until the deadline. 3. All groups fail, here and on the other nodes.
    const Deadline drain = Deadline::after_ms(drain_ms);
    while (!ask_engines([](Engine& engine) { return engine.quiet(); }) && !drain.expired()) ::usleep(10'000);
    ask_engines([&](Engine& engine) {
      engine.fail_all(Code::kDaemonLost, why);
      return true;
    });
    // 4. What was sent to other nodes leaves before the connections close.
    const Deadline told = Deadline::after_ms(kTellMs);
    while (!ask_engines([](Engine& engine) { return engine.links_idle(); }) && !told.expired())
      ::usleep(1'000);
    // 5. Sessions end, then the control thread, and at last the engines.
    std::promise<void> closed;
    mailbox_.post([&] {
      (void)contained("the end of sessions", [&] {
        // A process that uses an embedded daemon and has no rank there finds another daemon when it needs
        // one.
        if (host_pid_ != 0) {
          sessions_->abandon();
        } else {
          sessions_->refuse_all(Code::kDaemonLost, why);
        }
      });
      closed.set_value();
    });
    closed.get_future().wait();
    stop_.store(true, std::memory_order_release);
    mailbox_.post([] {});
    thread_.join();
  }
  for (auto& engine : engines_) engine->stop();
  mailbox_.close();
}

}  // namespace hdt::daemon
