// engine.cc: an engine's thread and its rounds, and the making and the end of groups.
#include "daemon/engine/engine.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "base/contained.h"
#include "base/log.h"
#include "base/patience.h"
#include "base/start_thread.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kGoodbyeMs = 200;  // how long say_goodbye() may take in all

}  // namespace

// The services that a group may ask of its engine. Each group has one of its own, so a request always carries
// the id of the group that makes it. The engine owns it by way of the group; the engine's thread.
class Engine::ServicesOfGroup : public GroupServices {
 public:
  ServicesOfGroup(Engine& engine, uint64_t group) : engine_(engine), group_(group) {}

  // Null unless the process of that local rank shares the memory in this very group: a number alone
  // proves nothing, since a rank could name memory of another user's group.
  std::shared_ptr<SharedMemory> find_memory(uint32_t local, uint64_t number) override {
    return engine_.sessions_.find_memory(group_, local, number);
  }
  // Regions are known to one backend only. Whoever registers memory for links of several backends
  // registers it once for each.
  Result<transport::RegionKey> register_memory(const SharedMemory& memory, uint32_t backend) override {
    return engine_.devices_.of_backend(backend).register_memory(memory.data(), memory.size(), memory.fd());
  }
  void deregister_memory(const transport::RegionKey& key, uint32_t backend) override {
    engine_.devices_.of_backend(backend).deregister_memory(key);
  }
  // A node is named to the backend as a writer: only writes that come on a connection admitted for that
  // node may land in the region.
  Status grant(const transport::RegionKey& key, uint32_t backend, const NodeId& node) override {
    return engine_.devices_.of_backend(backend).grant(key, writer(node));
  }
  void revoke(const transport::RegionKey& key, uint32_t backend, const NodeId& node) override {
    engine_.devices_.of_backend(backend).revoke(key, writer(node));
  }
  // The node's successor is in the group again. The engine has no more to do with it: control is
  // informed.
  void on_back(uint32_t node) override { engine_.events_.on_back(group_, node); }

 private:
  Engine& engine_;
  const uint64_t group_;
};

// The parts are made in the order in which engine.h lists them, each with references to those before it.
// None of them calls another one in its constructor.
Engine::Engine(EngineOptions options, EngineEvents& events)
    : options_(std::move(options)),
      events_(events),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      devices_(options_, epoll_.get()),
      links_(options_, devices_, options_.policy_of, *this),
      measuring_(options_, options_.known, devices_, links_, *this),
      keys_(devices_),
      chooser_(options_, groups_, devices_, links_, keys_, early_),
      mover_(options_, groups_, devices_, links_, chooser_, keys_, events_),
      successors_(options_, groups_, links_, chooser_),
      sessions_({options_.index, options_.host_pid, options_.node_name}, epoll_.get(), groups_),
      reports_(groups_, devices_, links_, chooser_, sessions_) {}

// The thread uses every part, so it ends before the first of them is destroyed.
Engine::~Engine() { stop(); }

// Everything that can fail comes before the thread, so a failed start needs no stop. The mailbox and the
// events of NICs are watched for as long as the engine lives; devices add their own descriptors when they
// are opened.
Status Engine::start() {
  if (!epoll_.valid()) return Status::from_errno("epoll_create1", errno);
  HDT_RETURN_IF_ERROR(mailbox_.status());
  HDT_RETURN_IF_ERROR(watch_descriptor(epoll_.get(), mailbox_.fd()));
  HDT_RETURN_IF_ERROR(links_.watch_nics());
  HDT_RETURN_IF_ERROR(watch_descriptor(epoll_.get(), links_.nic_events()));
  HDT_RETURN_IF_ERROR(devices_.open(options_.nics));
  auto thread = start_thread("hdt-engine-" + std::to_string(options_.index), [this] { run(); });
  if (!thread.is_ok()) return thread.status();
  thread_ = thread.take();
  return Status::ok();
}

// Before the thread runs, whoever makes the engine may call its parts. A defect here would be a race that
// no test has to find, so it ends the program at once, in releases too.
void Engine::on_thread() const {
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) {
    HDT_LOG_ERROR("a part of engine {} was used by another thread: this is a defect of HDT", options_.index);
    std::abort();
  }
}

// The order matters: first the flag, then a piece of work that does nothing, which wakes the thread if it
// sleeps in epoll. The mailbox closes last, when nobody empties it any more. Called by the thread that owns
// the engine.
void Engine::stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  mailbox_.post([] {});
  thread_.join();
  mailbox_.close();
}

// An engine that sleeps is not stuck. The empty piece of work makes it pass its heartbeat once, so that
// silence after this call means a round that does not end.
void Engine::ask_alive() {
  heartbeat_.ask();
  mailbox_.post([] {});
}

// The flag comes before the stop, so that the thread, which looks at it after its last round, sends no
// goodbye: peers would take a goodbye for the end of its groups.
void Engine::abandon() {
  silent_.store(true, std::memory_order_release);
  stop();
}

// The loop alternates between three states. Busy: rounds follow each other. Idle for less than `spin_ns`:
// it looks again and again, since a wake-up costs more than the look. Asleep: the flags in all wake pages
// are set, one more round looks at what came meanwhile, and only then epoll waits. The flags are cleared by
// the same thread, so no bell can fall between.
void Engine::run() {
  std::array<epoll_event, 64> events{};
  // A device that is attended need not make its event_fd() readable for what the engine posts itself,
  // which spares a system call (transport::Device::set_attended()).
  const auto set_asleep = [this](bool asleep) {
    for (size_t device = 0; device < devices_.count(); ++device) devices_.at(device).set_attended(!asleep);
    sessions_.set_asleep(asleep);
  };
  // The last moment at which a round found something to do.
  int64_t idle_since = now_ns();
  // To wake an engine costs more than to wake a rank, so only for how long it lost its core counts.
  Patience patience(std::numeric_limits<int>::max());
  // One turn of the loop. It returns after at most one sleep, so that `stop_` is looked at.
  const auto round = [&] {
    if (work()) {
      idle_since = now_ns();
      patience.begin_wait();
      return;
    }
    // Whoever shares this core may be the one that we wait for.
    if (now_ns() - idle_since < options_.spin_ns && patience.give_way()) return;
    set_asleep(true);
    if (!work()) {
      const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), sleep_ms());
      for (int i = 0; i < ready; ++i) {
        const int fd = events[static_cast<size_t>(i)].data.fd;
        if (fd == links_.nic_events()) links_.hear_nics();
        // Devices and the mailbox empty theirs when they work.
        sessions_.on_readable(fd);
      }
    }
    set_asleep(false);
    idle_since = now_ns();
    patience.begin_wait();
  };
  while (!stop_.load(std::memory_order_acquire)) {
    heartbeat_.pass();
    // The work for one group, session or link has ended that one before an exception comes here. For the
    // rest, a bell may have been heard whose group nobody looked at. So all groups are looked at.
    (void)contained("a round of an engine", round, [this](const std::string&) {
      look_at_all_ = true;
      ::usleep(kAfterFailureUs);
    });
  }
  if (!silent_.load(std::memory_order_acquire))
    (void)contained("the goodbye of an engine", [this] { say_goodbye(); });
}

// One round over everything that can have happened; engine.h lists its parts.
bool Engine::work() {
  bool any = mailbox_.run();
  if (std::exchange(look_at_all_, false)) groups_.touch_all();
  // Looking at sessions needs no system call, and what ranks have called leaves while devices are looked
  // at.
  any |= sessions_.hear();
  any |= groups_.progress_touched();
  any |= links_.poll();
  any |= groups_.progress_touched();
  links_.give_turns();
  links_.flush();
  run_timers();
  links_.break_torn();
  mover_.close_drained_links();
  any |= reap_groups();
  links_.drop_ended();
  return any;
}

// Closes links in order, so that peers can distinguish an end from a crash. A failure has been sent before.
void Engine::say_goodbye() {
  const Deadline until = Deadline::after_ms(kGoodbyeMs);
  while (work() && !until.expired()) {  // NodeDeparted may still be on its way to the sockets
  }
  links_.close_all({Code::kDaemonLost, "this daemon ends"});
  while (links_.has_connections() && !until.expired()) {
    if (!work()) ::usleep(500);
  }
}

// The times of groups come first, since they can fail a group; then those of links. Each piece is contained
// by itself: the timer of one group may not cost the others theirs.
void Engine::run_timers() {
  for (const auto& group : groups_.all()) {
    if (group == nullptr) continue;
    if (const auto next = group->next_time(); next && next->expired())
      GroupTable::contain(*group, [&group] { group->on_time(); });
  }
  links_.run_timers();
  (void)contained("measurements of links", [this] { measuring_.run_timers(); });
  (void)contained("links that others make", [this] { chooser_.give_up_on_dialers(); });
  early_.expire();
}

// The earliest of all times in ms, rounded by poll_timeout_ms(); -1 if no timer runs. Groups are asked one
// by one, as most have none. Computed only before a sleep.
int Engine::sleep_ms() const {
  Deadline next = Deadline::earlier(links_.next_time(), measuring_.next_time());
  next = Deadline::earlier(next, chooser_.next_time());
  for (const auto& group : groups_.all()) {
    if (group == nullptr) continue;
    if (const auto time = group->next_time()) next = Deadline::earlier(next, *time);
  }
  return next.poll_timeout_ms();
}

// An exception on the way leaves the group either in the table, where it fails as any other group, or
// nowhere; in both cases on_ready is called, because a rank waits for it.
void Engine::create_group(GroupSpec spec) {
  on_thread();
  if (groups_.find(spec.id) != nullptr) {  // who makes groups has asked before: never two of one id
    if (spec.on_ready) spec.on_ready({Code::kInternal, "the engine has a group of this id"});
    return;
  }
  const uint64_t id = spec.id;
  std::function<void(Status)> on_ready;  // make_group() moves the spec
  (void)contained(
      "a new group",
      [&] {
        on_ready = spec.on_ready;
        make_group(std::move(spec));
      },
      [&](const std::string& why) {
        if (EngineGroup* made = groups_.find(id)) return made->give_up(why);
        keys_.end(id);
        const auto& to_tell = on_ready ? on_ready : spec.on_ready;
        if (to_tell) to_tell({Code::kSystem, "the daemon could not make the group: " + why});
      });
}

// Steps that allocate come before the group is entered. In an adopted group nothing is connected here: the
// other nodes are met first (Successors). A group that ends with its host waits for no successor of it.
void Engine::make_group(GroupSpec spec) {
  const uint32_t index = groups_.make_room();
  const uint64_t id = spec.id;
  keys_.add(id, spec.memory);
  spec.restart_ms = spec.ends_with_host ? 0 : options_.restart_ms;
  const bool adopted = spec.adopted;  // then the other nodes are met first
  if (spec.nodes.size() > 1 && !adopted) spec.memory_rates = measuring_.memory();
  EngineGroup& group = groups_.enter(
      index,
      std::make_unique<EngineGroup>(std::move(spec), index, std::make_unique<ServicesOfGroup>(*this, id)));
  if (!adopted) chooser_.connect_group(group);
}

// For the end of this daemon. Groups without a local rank are left alone, as nobody here would read the
// failure.
void Engine::fail_all(Code code, const std::string& text) {
  on_thread();
  for (const auto& group : groups_.all()) {
    if (group == nullptr) continue;
    GroupTable::contain(*group, [&] {
      group->note_departures();  // a process that leaves and ends at once has not failed
      if (group->has_local_ranks()) group->fail(code, -1, text);
    });
  }
}

// By id, because the group may have ended since control decided. The group is touched so that it is
// looked at, whatever it has to send.
void Engine::fail_group(uint64_t group, Code code, int32_t rank, const std::string& text) {
  on_thread();
  EngineGroup* const failed = groups_.find(group);
  if (failed == nullptr) return;
  GroupTable::contain(*failed, [&] { failed->fail(code, rank, text); });
  groups_.touch(*failed);
}

// Asked by control while a daemon waits to end: what departed ranks have sent lives in this process alone.
bool Engine::departed_are_done() const {
  on_thread();
  return links_idle() && std::all_of(groups_.all().begin(), groups_.all().end(), [](const auto& group) {
           return group == nullptr || group->has_local_ranks() || group->departure_sent();
         });
}

// Asked by Succession: ranks of one job leave at about the same time, so the others may be about to.
bool Engine::host_departed_before_others() const {
  on_thread();
  return std::any_of(groups_.all().begin(), groups_.all().end(), [](const auto& group) {
    return group != nullptr && !group->solo() && group->has_local_ranks() && group->host_has_departed();
  });
}

// Only a moment's answer: a rank may begin a call directly after it.
bool Engine::quiet() const {
  on_thread();
  return std::all_of(groups_.all().begin(), groups_.all().end(),
                     [](const auto& group) { return group == nullptr || group->quiet(); });
}

// A group that is being made has promised its ranks an answer, which only this daemon can give.
bool Engine::groups_are_made() const {
  on_thread();
  return std::all_of(groups_.all().begin(), groups_.all().end(),
                     [](const auto& group) { return group == nullptr || group->is_made(); });
}

// Groups are destroyed at the end of a round and never inside one of their own calls, whose callers still
// hold them. Each part forgets the group in a step of its own, so that none is left out when another throws.
bool Engine::reap_groups() {
  // Control hears of the end with all that is known, or with less where there is no memory for that.
  // GroupMaker must hear of it, so a group of which not even that can be reported stays for now.
  const auto report = [this](const EngineGroup& group) {
    const auto in_full = [&] { events_.on_ended(reports_.facts_of(group)); };
    const auto bare = [&] {
      GroupFacts facts;
      facts.id = id_text(group.id());
      facts.ended = true;
      events_.on_ended(std::move(facts));
    };
    return contained("facts of a group that has ended", in_full) || contained("the end of a group", bare);
  };
  bool any = false;
  for (uint32_t index = 0; index < groups_.all().size(); ++index) {
    EngineGroup* const group = groups_.all()[index].get();
    if (group == nullptr) continue;
    GroupTable::contain(*group, [group] { group->send_departure(); });
    if (!group->finished()) continue;
    if (!report(*group)) {
      group->end_later();
      continue;
    }
    const uint64_t id = group->id();
    (void)contained("choices of links", [&] { chooser_.end(*group); });
    (void)contained("a move of a group", [&] { mover_.end(id); });
    successors_.end(id);
    (void)contained("the end of a group", [&] {
      HDT_LOG_INFO("group {} ended {}", short_id(id),
                   LogTag{.group = group->context().group_class, .node = options_.node_name});
    });
    sessions_.drop_seats(*group);
    keys_.end(id);
    groups_.remove(index);
    any = true;
  }
  if (any) mover_.check_proposed();
  return any;
}

}  // namespace hdt::daemon
