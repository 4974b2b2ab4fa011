// session_table.cc: see session_table.h.
#include "daemon/engine/session_table.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <bit>

#include "base/contained.h"
#include "base/log.h"
#include "daemon/links/devices.h"

namespace hdt::daemon {

// A session whose eventfd cannot be watched works all the same while the engine is awake; it is slow to
// wake it. So the error is logged, and the process is not refused.
void SessionTable::add(std::shared_ptr<SessionLink> session) {
  const Status watched = watch_descriptor(epoll_, session->eventfds[options_.engine].get());
  if (!watched.is_ok()) {
    HDT_LOG_ERROR("pid {}: {} {}", session->pid, watched.message(), LogTag{.node = options_.node_name});
  }
  const uint64_t number = session->number;
  sessions_[number].link = std::move(session);
}

// The eventfd leaves epoll explicitly: the process holds a copy of it, so closing this end would not take
// it out.
void SessionTable::remove(uint64_t session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  ::epoll_ctl(epoll_, EPOLL_CTL_DEL, eventfd_of(found->second), nullptr);
  sessions_.erase(found);
}

// Memory may have come from a session that has no entry here, because there was no memory for that.
void SessionTable::process_ended(uint64_t session, const std::string& how) {
  if (const auto found = sessions_.find(session); found != sessions_.end()) {
    for (auto& [handle, taken] : found->second.seats) {
      EngineGroup& group = *taken.group;
      GroupTable::contain(group, [&group] { group.progress(); });
      GroupTable::contain(group,
                          [&group, &how, local = taken.local] { group.local_rank_failed(local, how); });
      groups_.touch(group);
    }
    remove(session);
  }
  std::erase_if(memories_, [session](const auto& entry) { return entry.second.session == session; });
}

// Control posts the seat after it has posted the session, and both come in order. So a session that is not
// here has ended in the meantime, and its rank will never come.
void SessionTable::attach(uint64_t session, uint32_t handle, uint64_t group, uint32_t local) {
  const auto found = sessions_.find(session);
  EngineGroup* made = groups_.find(group);
  if (made == nullptr || local >= made->context().local_ranks.size()) return;
  if (found == sessions_.end()) {  // the process died while the group was made
    GroupTable::contain(*made, [&] { made->local_rank_failed(local, "ended while the group was made"); });
    groups_.touch(*made);
    return;
  }
  (void)contained(
      "a seat",
      [&] {
        found->second.seats[handle] = {made, local};
        found->second.highest = std::max(found->second.highest, handle);
        // Release: ranks read the flag with acquire when they ask whether the daemon ends with a
        // process of theirs.
        const bool hosts = options_.host_pid != 0 && found->second.link->pid == options_.host_pid;
        made->context().segment.rank_state(local).hosts.store(hosts ? 1 : 0, std::memory_order_release);
        made->local_rank_here(local, found->second.link->uid);
      },
      [&](const std::string&) {
        GroupTable::contain(
            *made, [&] { made->local_rank_failed(local, "got no seat, as the log of its daemon says"); });
      });
  // The process may have rung before its seat was known: after a look at the mailbox, before one at
  // sessions.
  groups_.touch(*made);
}

// The group makes progress first: calls that the rank published before it departed count, and afterwards
// nobody would look at them.
void SessionTable::leave(uint64_t session, uint32_t handle) {
  const Seat* taken = seat(session, handle);
  if (taken == nullptr) return;
  EngineGroup* group = taken->group;
  const uint32_t local = taken->local;
  GroupTable::contain(*group, [group] { group->progress(); });  // what the rank did before it departed
  GroupTable::contain(*group, [group, local] { group->local_rank_departed(local); });
  if (const auto found = sessions_.find(session); found != sessions_.end()) found->second.seats.erase(handle);
  groups_.touch(*group);
}

// The rank's own seat says which group is meant. So a process can fail groups that it is in, and no other.
void SessionTable::fail(uint64_t session, uint32_t handle, Code code, int32_t rank, const std::string& text) {
  const Seat* failed = seat(session, handle);
  if (failed == nullptr) return;
  GroupTable::contain(*failed->group, [&, group = failed->group] { group->fail(code, rank, text); });
  groups_.touch(*failed->group);
}

// By address, as the group is about to be destroyed: a seat that stayed would point at freed memory.
void SessionTable::drop_seats(const EngineGroup& group) {
  for (auto& [number, session] : sessions_) {
    std::erase_if(session.seats, [&](const auto& seat) { return seat.second.group == &group; });
  }
}

// The number is unique in the daemon, as control counts it. The session need not have an entry here
// (process_ended()).
void SessionTable::add_memory(uint64_t session, uint64_t number, uint32_t handle,
                              std::shared_ptr<SharedMemory> memory) {
  memories_[number] = {session, handle, std::move(memory)};
}

// Every group is asked to forget it, since it is not recorded which one has registered the memory. A group
// that has a call under way in it lets go of it later.
void SessionTable::remove_memory(uint64_t number) {
  memories_.erase(number);
  for (const auto& group : groups_.all()) {
    if (group != nullptr) GroupTable::contain(*group, [&] { group->forget_memory(number); });
  }
}

// Only what the process of that rank shares itself, in that group.
std::shared_ptr<SharedMemory> SessionTable::find_memory(uint64_t group, uint32_t local, uint64_t number) {
  const auto found = memories_.find(number);
  if (found == memories_.end()) return nullptr;
  const Seat* owner = seat(found->second.session, found->second.handle);
  const EngineGroup* wanted = groups_.find(group);
  if (owner == nullptr || wanted == nullptr || owner->group != wanted || owner->local != local)
    return nullptr;
  return found->second.memory;
}

// Costs one load for each word of each session while nothing happens: this is the path of every round. The
// bits are taken by exchange, so a bit that a rank sets after it is seen in the next round. Acquire pairs
// with the rank's release, so that the calls that it has published before are visible when the group looks.
bool SessionTable::hear() {
  bool any = false;
  for (auto& [number, session] : sessions_) {
    ipc::EngineBell& bell = bell_of(session);
    for (uint32_t word = 0; word < ipc::kAttentionWords; ++word) {
      // Sequentially consistent, as this may be the look after `asleep` was set (ipc/wake_page.h).
      if (bell.attention[word].load(std::memory_order_seq_cst) == 0) continue;
      uint64_t bits = bell.attention[word].exchange(0, std::memory_order_acq_rel);
      any = true;
      for (; bits != 0; bits &= bits - 1) {
        const uint32_t low = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
        // Handles that share the bit are all looked at. Most sessions have none beyond the period.
        const uint32_t period = ipc::kAttentionWords * 64;
        if (const auto seat = session.seats.find(low); seat != session.seats.end())
          groups_.touch(*seat->second.group);
        if (session.highest < period) continue;
        for (const auto& [handle, other] : session.seats) {
          if (handle != low && handle % period == low) groups_.touch(*other.group);
        }
      }
    }
  }
  return any;
}

// Sequentially consistent, against the load in hear(): either the process sees the flag and rings, or this
// engine sees the bit.
void SessionTable::set_asleep(bool asleep) {
  for (auto& [number, session] : sessions_)
    bell_of(session).asleep.store(asleep ? 1 : 0, std::memory_order_seq_cst);
}

// The count says nothing: the bits in the wake page say who rang. It is read only so that the
// level-triggered descriptor falls silent.
void SessionTable::on_readable(int fd) const {
  const bool is_session = std::any_of(sessions_.begin(), sessions_.end(),
                                      [&](const auto& entry) { return eventfd_of(entry.second) == fd; });
  eventfd_t count = 0;
  if (is_session) ::eventfd_read(fd, &count);
}

// Only for people (status, diagnosis), so a search over all seats is good enough.
uint32_t SessionTable::pid_of(const EngineGroup& group, uint32_t local) const {
  for (const auto& [number, session] : sessions_) {
    for (const auto& [handle, taken] : session.seats) {
      if (taken.group == &group && taken.local == local) return session.link->pid;
    }
  }
  return 0;
}

// A handle comes from a process and may be any number.
SessionTable::Seat* SessionTable::seat(uint64_t session, uint32_t handle) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  const auto seat = found->second.seats.find(handle);
  return seat == found->second.seats.end() ? nullptr : &seat->second;
}

}  // namespace hdt::daemon
