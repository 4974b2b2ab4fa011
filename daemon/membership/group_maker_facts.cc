// group_maker_facts.cc: what GroupMaker contributes to diagnosis (making_facts.h): the groups that ranks
// of this node wait for.
#include "daemon/membership/group_maker.h"
#include "daemon/protocol/facts.h"

namespace hdt::daemon {

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
  for (const auto& [key, pending] : groups_) {
    if (pending.made && pending.to_fail == Code::kSuccess) continue;
    const Deadline time =
        pending.made ? Deadline::after_ms(0) : Deadline::earlier(pending.until, pending.retry_at);
    next = next ? Deadline::earlier(*next, time) : time;
  }
  return next;
}

}  // namespace hdt::daemon
