// group_maker_facts.cc: the end of a group in GroupMaker, what is repeated and when, and what it contributes
// to diagnosis (making_facts.h): the groups that ranks of this node wait for.
#include "base/contained.h"
#include "daemon/membership/group_maker.h"
#include "daemon/protocol/facts.h"

namespace hdt::daemon {

namespace {

// The pause before the loss of ranks is reported to engines again, in ms.
constexpr int64_t kTellFailedMs = 10;

}  // namespace

// One entry for each group, with the ranks of this node that wait for it and the time that they still have.
std::vector<MakingFacts> GroupMaker::making() const {
  std::vector<MakingFacts> all;
  for (const auto& [key, pending] : groups_) {
    MakingFacts& facts = all.emplace_back();
    // Until the Membership has come the group's id is not known; the coordinator names the group by its
    // key as well, so both reports have the same name.
    facts.id = id_text(pending.made ? pending.made->id : group_id(key));
    facts.group_class = pending.group_class;
    facts.rendezvous = pending.rendezvous;
    facts.last_error = pending.last_error;
    facts.complete = pending.made.has_value();
    facts.left_ns = pending.until.is_never() ? -1 : pending.until.remaining_ns();
    facts.members = {node_.id};
    for (const auto& [rank, join] : pending.joins) {
      facts.users.push_back(join.uid);
      facts.ranks = join.request.ranks;
      facts.joined.push_back({rank, node_.name});
    }
  }
  return all;
}

std::optional<Deadline> GroupMaker::next_time() const {
  std::optional<Deadline> next;
  if (!unseated_.empty()) next = Deadline::after_ms(kTellFailedMs);
  for (const auto& [key, pending] : groups_) {
    if (pending.made && pending.to_fail == Code::kSuccess) continue;
    const Deadline time =
        pending.made ? Deadline::after_ms(0) : Deadline::earlier(pending.until, pending.retry_at);
    next = next ? Deadline::earlier(*next, time) : time;
  }
  return next;
}

// There may be no memory for the reason. That its ranks count as failed fails the group in any case.
void GroupMaker::give_up(const GroupKey& key, const std::string& why) {
  const auto found = groups_.find(key);
  if (found == groups_.end()) return;
  Status failure(Code::kInternal, "no memory");
  (void)contained("a group that is given up", [&] {
    failure = {Code::kInternal, "the daemon could not take up the group: " + why};
    if (const auto& made = found->second.made)
      user_.fail(made->engine, made->id, Outcome{key, failure.code(), -1, failure.message()});
  });
  found->second.given_up = found->second.made.has_value();
  refuse(key, failure);
}

void GroupMaker::tell_failed() {
  for (auto& [key, pending] : unseated_) {
    std::erase_if(pending.joins, [&made = *pending.made, this](const auto& entry) {
      return user_.rank_failed(made, entry.second.local);
    });
  }
  std::erase_if(unseated_, [](const auto& entry) { return entry.second.joins.empty(); });
}

void GroupMaker::on_group_ended(const std::string& id) {
  std::erase_if(living_, [&](const auto& entry) {
    const Living& group = entry.second;
    if (daemon::id_text(group.id) != id) return false;
    if (group.hosted) user_.leave(*group.hosted);
    return true;
  });
}

}  // namespace hdt::daemon
