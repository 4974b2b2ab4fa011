// An engine's thread and its rounds, sessions and their seats, and the making and the end of groups.
#include "daemon/engine/engine.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>

#include "base/contained.h"
#include "base/log.h"
#include "base/start_thread.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kGoodbyeMs = 200;  // how long say_goodbye() may take in all

Status watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0) return Status::ok();
  return Status::from_errno("watching a descriptor (the limit of a user is fs.epoll.max_user_watches)",
                            errno);
}

}  // namespace

Engine::Engine(EngineOptions options)
    : options_(std::move(options)), epoll_(::epoll_create1(EPOLL_CLOEXEC)) {}

Engine::~Engine() { stop(); }

Status Engine::start() {
  if (!epoll_.valid()) return Status::from_errno("epoll_create1", errno);
  HDT_RETURN_IF_ERROR(mailbox_.status());
  HDT_RETURN_IF_ERROR(watch(epoll_.get(), mailbox_.fd()));
  HDT_RETURN_IF_ERROR(nic_watch_.open());
  HDT_RETURN_IF_ERROR(watch(epoll_.get(), nic_watch_.fd()));
  for (const BackendNic& nic : options_.nics) HDT_RETURN_IF_ERROR(open_nic(nic));
  auto thread = start_thread("hdt-engine-" + std::to_string(options_.index), [this] { run(); });
  if (!thread.is_ok()) return thread.status();
  thread_ = thread.take();
  return Status::ok();
}

void Engine::watch_device(const transport::Device& device) {
  const Status watched = watch(epoll_.get(), device.event_fd());
  if (!watched.is_ok()) HDT_LOG_ERROR("{} {}", watched.message(), LogTag{.node = options_.node_name});
}

void Engine::stop() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  mailbox_.post([] {});
  thread_.join();
  mailbox_.close();
}

void Engine::ask_alive() {
  heartbeat_.ask();
  mailbox_.post([] {});
}

void Engine::abandon() {
  silent_.store(true, std::memory_order_release);
  stop();
}

void Engine::run() {
  std::array<epoll_event, 64> events{};
  int64_t idle_since = now_ns();
  const auto round = [&] {
    if (work()) {
      idle_since = now_ns();
      return;
    }
    if (now_ns() - idle_since < options_.spin_ns) {
      ::sched_yield();  // whoever shares this core may be the one that we wait for
      return;
    }
    set_asleep(true);
    if (!work()) {
      const int ready = ::epoll_wait(epoll_.get(), events.data(), events.size(), sleep_ms());
      for (int i = 0; i < ready; ++i) {
        if (events[static_cast<size_t>(i)].data.fd == nic_watch_.fd()) hear_nics();
        // Eventfds of sessions are emptied here; devices and the mailbox empty theirs when they work.
        const bool is_session = std::any_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
          return entry.second.link->eventfds[options_.index].get() == events[static_cast<size_t>(i)].data.fd;
        });
        eventfd_t count = 0;
        if (is_session) ::eventfd_read(events[static_cast<size_t>(i)].data.fd, &count);
      }
    }
    set_asleep(false);
    idle_since = now_ns();
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

// Closes links in order, so that peers can distinguish an end from a crash. A failure has been sent
// before.
void Engine::say_goodbye() {
  const Deadline until = Deadline::after_ms(kGoodbyeMs);
  while (work() && !until.expired()) {  // NodeLeft may still be on its way to the sockets
  }
  std::vector<PeerLink*> all;  // collected first, as a link without rails is forgotten at once
  for (auto& [id, peer] : peers_) all.push_back(peer.get());
  for (PeerLink* peer : all) peer->link.close({Code::kDaemonLost, "this daemon ends"});
  while (!rails_.empty() && !until.expired()) {
    if (!work()) ::usleep(500);
  }
}

// One round over everything that can have happened; engine.h lists its parts.
bool Engine::work() {
  bool any = mailbox_.run();
  if (std::exchange(look_at_all_, false)) {
    for (auto& group : groups_) {
      if (group != nullptr) touch(group.get());
    }
  }
  // Looking at sessions needs no system call, and what ranks have called leaves while devices are looked
  // at.
  any |= hear_sessions();
  any |= progress_touched();
  for (size_t device = 0; device < devices_.size(); ++device) {
    completions_.clear();
    (void)contained("a device", [&] { any |= devices_[device]->poll(completions_); });
    for (const auto& completion : completions_) contain_completion(device, completion);
  }
  any |= progress_touched();
  share_nics();
  // After the groups have written, since that carries most acknowledgements.
  for (auto& [id, peer] : peers_) {
    (void)contained("acknowledgements of a link", [&link = peer->link] { link.flush(); });
  }
  run_timers();
  break_torn_links();
  retire_links();
  any |= reap_groups();
  retired_.clear();
  return any;
}

bool Engine::progress_touched() {
  bool any = false;
  progressing_.clear();
  progressing_.swap(touched_);
  for (EngineGroup* group : progressing_) {
    contain(*group, [&] { any |= group->progress(); });
  }
  return any;
}

bool Engine::hear_sessions() {
  bool any = false;
  for (auto& [number, session] : sessions_) {
    ipc::EngineBell& bell = session.link->page().engines[options_.index];
    for (uint32_t word = 0; word < ipc::kAttentionWords; ++word) {
      // Sequentially consistent, as this may be the look after `asleep` was set (ipc/wake_page.h).
      if (bell.attention[word].load(std::memory_order_seq_cst) == 0) continue;
      uint64_t bits = bell.attention[word].exchange(0, std::memory_order_acq_rel);
      any = true;
      for (; bits != 0; bits &= bits - 1) {
        const uint32_t low = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
        // Handles that share the bit are all looked at. Most sessions have none beyond the period.
        const uint32_t period = ipc::kAttentionWords * 64;
        if (const auto seat = session.seats.find(low); seat != session.seats.end()) touch(seat->second.group);
        if (session.highest < period) continue;
        for (const auto& [handle, other] : session.seats) {
          if (handle != low && handle % period == low) touch(other.group);
        }
      }
    }
  }
  return any;
}

// Keeps the order in which groups were touched. At most one entry for each, so make_group() can reserve.
void Engine::touch(EngineGroup* group) {
  if (std::find(touched_.begin(), touched_.end(), group) == touched_.end()) touched_.push_back(group);
}

void Engine::set_asleep(bool asleep) {
  for (const auto& device : devices_) device->set_attended(!asleep);
  for (auto& [number, session] : sessions_) {
    session.link->page().engines[options_.index].asleep.store(asleep ? 1 : 0, std::memory_order_seq_cst);
  }
}

void Engine::run_timers() {
  for (auto& group : groups_) {
    if (group == nullptr) continue;
    if (const auto next = group->next_time(); next && next->expired())
      contain(*group, [&group] { group->on_time(); });
  }
  for (auto& [connection, rail] : rails_) {
    if (rail.greeting == nullptr || !rail.greeting->until.expired()) continue;
    if (rail.greeting->refused.empty()) rail.greeting->refused = "no daemon of HDT answers there";
    connection->close();
  }
  run_link_timers();
  (void)contained("measurements of links", [this] { run_probe_timers(); });
  (void)contained("links that others make", [this] { give_up_on_dialers(); });
  std::erase_if(early_, [](const EarlyMessage& note) { return note.until.expired(); });
}

int Engine::sleep_ms() const {
  Deadline next = Deadline::never();
  for (const auto& group : groups_) {
    if (group == nullptr) continue;
    if (const auto time = group->next_time()) next = Deadline::earlier(next, *time);
  }
  for (const auto& [connection, rail] : rails_) {
    if (rail.greeting != nullptr) next = Deadline::earlier(next, rail.greeting->until);
  }
  for (const auto& [id, peer] : peers_) next = Deadline::earlier(next, peer->next_time());
  next = Deadline::earlier(next, next_probe_time());
  next = Deadline::earlier(next, next_dialer_time());
  return next.poll_timeout_ms();
}

void Engine::add_session(std::shared_ptr<SessionLink> session) {
  const Status watched = watch(epoll_.get(), session->eventfds[options_.index].get());
  if (!watched.is_ok()) {
    HDT_LOG_ERROR("pid {}: {} {}", session->pid, watched.message(), LogTag{.node = options_.node_name});
  }
  const uint64_t number = session->number;
  sessions_[number].link = std::move(session);
}

void Engine::remove_session(uint64_t session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.link->eventfds[options_.index].get(), nullptr);
  sessions_.erase(found);
}

void Engine::add_memory(uint64_t session, uint64_t number, uint32_t handle,
                        std::shared_ptr<SharedMemory> memory) {
  memories_[number] = {session, handle, std::move(memory)};
}

void Engine::remove_memory(uint64_t number) {
  memories_.erase(number);
  for (auto& group : groups_) {
    if (group != nullptr) contain(*group, [&] { group->forget_memory(number); });
  }
}

// Only what the process of that rank shares itself, in that group.
std::shared_ptr<SharedMemory> Engine::find_memory(uint64_t group, uint32_t local, uint64_t number) {
  const auto found = memories_.find(number);
  if (found == memories_.end()) return nullptr;
  const Seat* owner = seat(found->second.session, found->second.handle);
  const EngineGroup* wanted = group_of(group);
  if (owner == nullptr || wanted == nullptr || owner->group != wanted || owner->local != local)
    return nullptr;
  return found->second.memory;
}

void Engine::create_group(GroupSpec spec) {
  if (group_by_id_.contains(spec.id)) {  // who makes groups has asked before: never two of one id
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
        if (EngineGroup* made = group_of(id)) return made->give_up(why);
        group_memory_.erase(id);
        const auto& to_tell = on_ready ? on_ready : spec.on_ready;
        if (to_tell) to_tell({Code::kSystem, "the daemon could not make the group: " + why});
      });
}

void Engine::make_group(GroupSpec spec) {
  const auto free = std::find(groups_.begin(), groups_.end(), nullptr);
  const auto slot = static_cast<uint32_t>(free - groups_.begin());
  if (free == groups_.end()) groups_.emplace_back();
  touched_.reserve(groups_.size());  // so that touch() takes no memory
  progressing_.reserve(groups_.size());
  const uint64_t id = spec.id;
  GroupMemory& memory = group_memory_[id];
  memory.memory = spec.memory;
  spec.direct.find = [this, id](uint32_t local, uint64_t number) { return find_memory(id, local, number); };
  spec.direct.enlist = [this](const SharedMemory& shared, uint32_t backend) {
    return device_of(backend).register_memory(shared.data(), shared.size(), shared.fd());
  };
  spec.direct.withdraw = [this](const transport::RegionKey& key, uint32_t backend) {
    device_of(backend).deregister_memory(key);
  };
  spec.direct.grant = [this](const transport::RegionKey& key, uint32_t backend, const NodeId& node) {
    return device_of(backend).grant(key, writer(node));
  };
  spec.direct.revoke = [this](const transport::RegionKey& key, uint32_t backend, const NodeId& node) {
    device_of(backend).revoke(key, writer(node));
  };
  spec.look_again = [this, id] {
    post([this, id] {
      EngineGroup* again = group_of(id);
      if (again == nullptr) return;
      again->count_look();
      touch(again);
    });
  };
  spec.restart_ms = spec.ends_with_host ? 0 : options_.restart_ms;
  spec.on_back = [this, id](uint32_t node) { options_.on_back(id, node); };
  const bool adopted = spec.adopted;  // then the other nodes are met first
  if (spec.nodes.size() > 1 && !adopted) spec.memory_rates = memory_rates();
  auto group = std::make_unique<EngineGroup>(std::move(spec), slot);
  group_by_id_[id] = group.get();
  groups_[slot] = std::move(group);
  if (!adopted) connect_group(*groups_[slot]);
}

void Engine::attach(uint64_t session, uint32_t handle, uint64_t group, uint32_t local) {
  const auto found = sessions_.find(session);
  EngineGroup* made = group_of(group);
  if (made == nullptr || local >= made->context().local_ranks.size()) return;
  if (found == sessions_.end()) {  // the process died while the group was made
    contain(*made, [&] { made->local_rank_lost(local, "ended while the group was made"); });
    touch(made);
    return;
  }
  (void)contained(
      "a seat",
      [&] {
        found->second.seats[handle] = {made, local};
        found->second.highest = std::max(found->second.highest, handle);
        const bool hosts = options_.host_pid != 0 && found->second.link->pid == options_.host_pid;
        made->context().segment.rank_state(local).hosts.store(hosts ? 1 : 0, std::memory_order_release);
        made->local_rank_here(local, found->second.link->uid);
      },
      [&](const std::string& why) {
        contain(*made, [&] { made->local_rank_lost(local, "cannot be given its seat: " + why); });
      });
  // The process may have rung before its seat was known: after a look at the mailbox, before one at
  // sessions.
  touch(made);
}

Engine::Seat* Engine::seat(uint64_t session, uint32_t handle) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  const auto seat = found->second.seats.find(handle);
  return seat == found->second.seats.end() ? nullptr : &seat->second;
}

void Engine::leave(uint64_t session, uint32_t handle) {
  Seat* left = seat(session, handle);
  if (left == nullptr) return;
  EngineGroup* group = left->group;
  const uint32_t local = left->local;
  contain(*group, [group] { group->progress(); });  // what the rank did before it departed
  contain(*group, [group, local] { group->local_rank_left(local); });
  if (const auto found = sessions_.find(session); found != sessions_.end()) found->second.seats.erase(handle);
  touch(group);
}

void Engine::fail(uint64_t session, uint32_t handle, Code code, int32_t rank, const std::string& text) {
  const Seat* failed = seat(session, handle);
  if (failed == nullptr) return;
  contain(*failed->group, [&, group = failed->group] { group->fail(code, rank, text); });
  touch(failed->group);
}

// Memory may have come from a session that has no entry here, because there was no memory for that.
void Engine::session_lost(uint64_t session, const std::string& how) {
  if (const auto found = sessions_.find(session); found != sessions_.end()) {
    for (auto& [handle, lost] : found->second.seats) {
      EngineGroup& group = *lost.group;
      contain(group, [&group] { group.progress(); });
      contain(group, [&group, &how, local = lost.local] { group.local_rank_lost(local, how); });
      touch(&group);
    }
    remove_session(session);
  }
  std::erase_if(memories_, [session](const auto& entry) { return entry.second.session == session; });
}

void Engine::fail_all(Code code, const std::string& text) {
  for (auto& group : groups_) {
    if (group == nullptr) continue;
    contain(*group, [&] {
      group->note_departures();  // a process that leaves and ends at once has not failed
      if (group->has_local_ranks()) group->fail(code, -1, text);
    });
  }
}

void Engine::fail_group(uint64_t group, Code code, int32_t rank, const std::string& text) {
  EngineGroup* const failed = group_of(group);
  if (failed == nullptr) return;
  contain(*failed, [&] { failed->fail(code, rank, text); });
  touch(failed);
}

bool Engine::links_idle() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& p) { return p.second->link.pending_writes() == 0; });
}

bool Engine::departed_are_done() const {
  return links_idle() && std::all_of(groups_.begin(), groups_.end(), [](const auto& group) {
           return group == nullptr || group->has_local_ranks() || group->told_left();
         });
}

bool Engine::host_left_before_others() const {
  return std::any_of(groups_.begin(), groups_.end(), [](const auto& group) {
    return group != nullptr && !group->solo() && group->has_local_ranks() && group->host_has_left();
  });
}

bool Engine::quiet() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group == nullptr || group->quiet(); });
}

bool Engine::groups_are_made() const {
  return std::all_of(groups_.begin(), groups_.end(),
                     [](const auto& group) { return group == nullptr || group->is_made(); });
}

bool Engine::reap_groups() {
  bool any = false;
  for (auto& group : groups_) {
    if (group == nullptr) continue;
    contain(*group, [&group] { group->say_left(); });
    if (!group->finished()) continue;
    const uint64_t id = group->id();
    bool told = contained("facts of a group that has ended", [&] { options_.on_ended(facts_of(*group)); });
    const auto tell_bare = [&] {
      GroupFacts bare;
      bare.id = id_text(id);
      bare.ended = true;
      options_.on_ended(std::move(bare));
    };
    if (!told) told = contained("the end of a group", tell_bare);
    if (!told) {  // GroupMaker must hear of it, so it is tried again
      group->look_again();
      continue;
    }
    remember_ended(id);
    const GroupMemory& memory = group_memory_[id];
    for (const auto& [backend, key] : memory.keys) device_of(backend).deregister_memory(key);
    (void)contained("choices of links", [&] { forget_choices(*group); });
    (void)contained("a move of a group", [&] { forget_move(id); });
    std::erase_if(successors_, [id](const auto& entry) { return entry.first.first == id; });
    (void)contained("the end of a group", [&] {
      HDT_LOG_INFO("group {} ended {}", short_id(id),
                   LogTag{.group = group->context().group_class, .node = options_.node_name});
    });
    group_memory_.erase(id);
    group_by_id_.erase(id);
    std::erase(touched_, group.get());
    // Ranks whose departure was read off their states still have seats: their message comes later, or
    // never.
    for (auto& [number, session] : sessions_) {
      std::erase_if(session.seats, [&](const auto& seat) { return seat.second.group == group.get(); });
    }
    group.reset();
    any = true;
  }
  if (any) check_proposed();
  return any;
}

EngineGroup* Engine::group_of(uint64_t id) {
  const auto found = group_by_id_.find(id);
  return found == group_by_id_.end() ? nullptr : found->second;
}

}  // namespace hdt::daemon
