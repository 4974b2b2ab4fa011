// restarts.cc: see restarts.h.
#include "daemon/control/restarts.h"

#include "base/log.h"
#include "daemon/control/class_changes.h"

namespace hdt::daemon {

// Which engine has the group is not known here: all are asked, and the others do not know it.
void Restarts::met(const Successor& sent, const SuccessorReply& answer) {
  daemon_.engines.post_all([own = sent.node, answer](Engine& engine) {
    (void)engine.successors().meet(answer.group, answer.from, answer.to, own, answer.node, true);
  });
}

// The other node answers that the group has failed or that it has forgotten it. The group ends here with
// the same reason.
void Restarts::failed(const SuccessorReply& answer) {
  daemon_.engines.post_all(
      [answer](Engine& engine) { engine.fail_group(answer.group, answer.code, answer.rank, answer.text); });
}

// If this node cannot have the newer settings, the group cannot go on here. Otherwise the Successor is
// renewed when the change is done (ClassChanges::take_live()).
void Restarts::newer(const Successor& sent, const SuccessorReply& answer) {
  const Status taken = daemon_.changes->take_live(sent.group_class, answer.live);
  if (taken.is_ok()) return;
  daemon_.rediscovery->give_up({answer.group, answer.from, answer.to, taken.code(), -1,
                                cannot_be(sent.group_class, answer.node, taken), answer.live, answer.node});
}

// For the failure of a group, which ranks on both nodes read: so both nodes are named.
std::string Restarts::cannot_be(const std::string& group_class, const NodeInfo& as_on,
                                const Status& why) const {
  return "class " + group_class + " cannot be on node " + daemon_.node.name + " as it is on " + as_on.name +
         ": " + why.message();
}

// Called once by each rank that comes back after a restart of the daemon. Everything in the request and in
// the segment is the process's word; Adoption checks it before it is used.
Status Restarts::adopt(uint64_t session, const ipc::AdoptRequest& request, UniqueFd segment) {
  // Links are made between engines of one index, so the group must stay with the engine that it had.
  ClientSession* client = daemon_.sessions->find(session);
  if (request.engine >= daemon_.engines.size()) {
    return {Code::kConfig, "the group belongs to engine thread " + std::to_string(request.engine) +
                               ", this daemon has " + std::to_string(daemon_.engines.size()) +
                               ": start it with the same node.threads"};
  }
  if (client->seats.contains(request.handle)) return {Code::kInvalidUsage, "two groups have the same handle"};
  // A refusal further below drops the memory again, and with it what adoption_ knows of the group.
  auto claim = daemon_.limits->claim(client->credentials.uid, UserLimits::What::kSeats);
  if (!claim.is_ok()) return claim.status();
  auto found = adoption_.find(request, client->credentials.uid, std::move(segment));
  if (!found.is_ok()) return found.status();
  Adoption::Found& group = found.value();
  // 1. The first rank that brings the group: an engine creates it, and the other nodes are searched.
  if (group.memory != nullptr) {
    auto spec = adoption_.describe(group, daemon_.node);
    if (!spec.is_ok()) return spec.status();
    // describe() knows this node without the ends of the class. The group fails at `deadline` if ranks of
    // this node have not come back by then.
    spec.value().nodes[spec.value().me] = daemon_.self_for(spec.value().group_class);
    spec.value().deadline = Deadline::after_ms(daemon_.restart_ms());
    // Fails if the key or the id is that of another group. Later ranks' memory is the same file and is
    // not mapped again.
    HDT_RETURN_IF_ERROR(daemon_.maker->on_adopted(*group.group, request.engine,
                                                  static_cast<uint32_t>(client->credentials.pid),
                                                  client->credentials.uid));
    // A copy for the search below: the spec itself moves to the engine.
    const GroupSpec others = spec.value();
    daemon_.engines.post(request.engine, [shared = std::make_shared<GroupSpec>(spec.take())](Engine& engine) {
      engine.create_group(std::move(*shared));
    });
    // The other nodes are searched at once, before all ranks of this node are back: both take time.
    for (uint32_t node = 0; node < others.nodes.size(); ++node) {
      if (node == others.me) continue;
      daemon_.rediscovery->begin(
          Successor{group.id, others.me, node, others.group_class, daemon_.live.of(others.group_class),
                    daemon_.self_for(others.group_class)},
          others.nodes[node].address, others.deadline);
    }
  }
  // 2. Each rank gets its seat. Seats compare groups by the memory (Seat::same_group()), so all of them
  //    refer to the mapping of the first rank.
  if (group.memory != nullptr) {
    std::erase_if(adopted_, [](const auto& entry) { return entry.second.expired(); });
    adopted_[group.id] = group.memory;
  }
  client->seats[request.handle] = {request.engine, group.id, adopted_[group.id],
                                   std::make_shared<UserLimits::Claim>(claim.take())};
  daemon_.engines.post(request.engine,
                       [session, handle = request.handle, id = group.id, local = request.local_index](
                           Engine& engine) { engine.sessions().attach(session, handle, id, local); });
  HDT_LOG_INFO("group {} adopted from pid {} {}", short_id(group.id), client->credentials.pid,
               LogTag{.node = daemon_.node.name});
  return Status::ok();
}

// Answers in three steps. 1. Is the sender the node that it names? 2. Do both know the same settings of
// the class? If not, the older ones are replaced first, here or there, and the other node asks again. 3.
// Does an engine have the group? If none has, it may still be adopted while this daemon is young, as it
// may have been started again, too; later it never will be.
void Restarts::on_successor(ChannelId channel, const Successor& word) {
  if (!daemon_.network->is_from(channel, word.node)) {
    HDT_LOG_WARN("a daemon that is not node {} sends messages in its name {}", word.node.name,
                 LogTag{.node = daemon_.node.name});
    return;
  }
  // kInProgress, until a step below knows better: then the other node asks again.
  auto answer = std::make_shared<SuccessorReply>();
  answer->group = word.group;
  answer->from = word.from;
  answer->to = word.to;
  answer->code = Code::kInProgress;
  answer->live = daemon_.live.of(word.group_class);
  answer->node = daemon_.self_for(word.group_class);
  if (answer->live != word.live) {
    const Status taken =
        answer->live < word.live ? daemon_.changes->take_live(word.group_class, word.live) : Status::ok();
    if (!taken.is_ok()) {
      answer->code = taken.code();
      answer->text = cannot_be(word.group_class, word.node, taken);
    }
    return daemon_.network->send(channel, *answer);
  }
  // `known` and `answer` are changed on the control thread only. An engine posts its answer before
  // daemon_.engines.on_every() posts the end, so the end comes after it.
  auto known = std::make_shared<bool>(false);
  daemon_.engines.on_every(
      [this, word, answer, known](Engine& engine) {
        auto met = engine.successors().meet(word.group, word.to, word.from, answer->node, word.node);
        if (!met) return;
        daemon_.mailbox.post([answer, known, met = std::move(*met)] {
          *known = true;
          answer->code = met.failure.code();
          answer->rank = met.rank;
          answer->text = met.failure.message();
        });
      },
      [this, channel, answer, known] {
        if (!*known && now_ns() - daemon_.started_ns >= daemon_.restart_ms() * kNsPerMs) {
          answer->code = Code::kRankLost;
          answer->text = "node " + daemon_.node.name + " does not know the group any more";
        }
        daemon_.network->send(channel, *answer);
      });
}

}  // namespace hdt::daemon
