// control_restart.cc: groups over restarts of daemons (docs/design/restart.md), as the control thread
// sees them. Three parts: before this daemon ends for a successor (prepare_handover()); when it is the
// successor and processes bring their groups (on_adopt(), PeerRediscovery); and when another node's daemon
// was started again (on_successor()).
#include <chrono>
#include <future>
#include <thread>

#include "base/log.h"
#include "base/saturate.h"
#include "daemon/control/control.h"

namespace hdt::daemon {

namespace {
// How often a handover looks whether it may happen.
constexpr int64_t kLookEveryNs = 5 * kNsPerMs;
// How long other nodes wait for the successor of an embedded daemon at most, in ms: all ranks are to
// learn of a loss within 5 s.
constexpr int64_t kSuccessionMs = 3'000;
// A thread that has not answered so long after the end of the drain is not waited for, in ms.
constexpr int64_t kAnswerMs = 1'000;
}  // namespace

// A group is being made from the first of its joins until each of its ranks has been answered, here and
// on the other nodes. It is handed on from part to part:
// 1. the sessions' sockets, while a process's request is unread: they are read here first;
// 2. the maker, and on the coordinator's node the rendezvous, until all nodes have reported success;
// 3. a control connection, while a failure is on its way to other nodes;
// 4. the engine, until every rank everywhere has its seat and the other nodes know of the seats
//    here (EngineGroup::is_made()).
//
// All parts are asked in one turn of the thread that hands the group on, so no group is between two of
// them. When the answer is yes, the same turn stops accepting joins.
bool Control::may_hand_over() {
  sessions_->read_all();
  const bool under_way = maker_->open_groups() != 0 || rendezvous_.open_groups() != 0 || change_ || reload_ ||
                         !network_->all_sent();
  if (under_way || !groups_are_made()) return false;
  leaving_ = true;
  return true;
}

bool Control::groups_are_made() {
  return ask_engines([](Engine& engine) { return engine.groups_are_made(); });
}

// Polls, as stop() does: it happens once in a daemon's life. Asks the control thread again and again.
// Ranks may join in between: each answer holds for its turn only, except the one that is yes.
bool Control::prepare_handover(int64_t drain_ms) {
  const Deadline drain = Deadline::after_ms(drain_ms);
  const Deadline answer = Deadline::after_ms(saturating_add(drain_ms, kAnswerMs));
  while (true) {
    if (ask_control([this] { return may_hand_over(); }, answer)) return true;
    if (drain.expired()) return false;
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLookEveryNs));
  }
}

// The connection of PeerRediscovery to the rest of the daemon. rediscovery_ is made before the thread starts,
// so `this` outlives every call.
PeerRediscovery::Services Control::rediscovery_services() {
  PeerRediscovery::Services services;
  services.dial = [this](const std::string& address) { return network_->dial(address); };
  services.send = [this](ChannelId channel, const ControlMessage& m) { send(channel, m); };
  // Which engine has the group is not known here: all are asked, and the others do not know it.
  services.met = [this](const Successor& word, const SuccessorReply& known) {
    for (auto& engine : engines_) {
      engine->post([e = engine.get(), own = word.node, known] {
        (void)e->successors().meet(known.group, known.from, known.to, own, known.node, true);
      });
    }
  };
  // The other node knows newer settings of the class. If this node cannot have them, the group cannot go
  // on here.
  services.newer = [this](const Successor& word, const SuccessorReply& known) {
    const Status taken = take_live_class(word.group_class, known.live);
    // The Successor is renewed when the change is done (take_live_class()).
    if (taken.is_ok()) return;
    rediscovery_->give_up({known.group, known.from, known.to, taken.code(), -1,
                           cannot_be(word.group_class, known.node, taken), known.live, known.node});
  };
  services.failed = [this](const SuccessorReply& known) {
    for (auto& engine : engines_) {
      engine->post(
          [e = engine.get(), known] { e->fail_group(known.group, known.code, known.rank, known.text); });
    }
  };
  return services;
}

// The ends are those of the class as it is now; a change of the class may alter them.
NodeInfo Control::self_for(const std::string& group_class) const {
  return {node_.id, node_.name, node_.address, plan_.ends_for(group_class, node_.rails)};
}

std::string Control::cannot_be(const std::string& group_class, const NodeInfo& as_on,
                               const Status& why) const {
  return "class " + group_class + " cannot be on node " + node_.name + " as it is on " + as_on.name + ": " +
         why.message();
}

// Another process that uses an embedded daemon takes its place at once. If there is none, nobody should
// wait long for it.
int64_t Control::restart_ms() const {
  const int64_t configured = config_.timeouts.restart_ms;
  return host_pid_ != 0 ? std::min(configured, kSuccessionMs) : configured;
}

Status Control::on_adopt(uint64_t session, const ipc::AdoptRequest& request, UniqueFd segment) {
  // Links are made between engines of one index, so the group must stay with the engine that it had.
  ClientSession* client = sessions_->find(session);
  if (request.engine >= engines_.size()) {
    return {Code::kConfig, "the group belongs to engine thread " + std::to_string(request.engine) +
                               ", this daemon has " + std::to_string(engines_.size()) +
                               ": start it with the same node.threads"};
  }
  if (client->seats.contains(request.handle)) return {Code::kInvalidUsage, "two groups have the same handle"};
  // A refusal further below drops the memory again, and with it what adoption_ knows of the group.
  auto claim = limits_->claim(client->credentials.uid, UserLimits::What::kSeats);
  if (!claim.is_ok()) return claim.status();
  auto found = adoption_.find(request, client->credentials.uid, std::move(segment));
  if (!found.is_ok()) return found.status();
  Adoption::Found& group = found.value();
  Engine* engine = engines_[request.engine].get();
  // 1. The first rank that brings the group: an engine creates it, and the other nodes are searched.
  if (group.memory != nullptr) {
    auto spec = adoption_.describe(group, node_);
    if (!spec.is_ok()) return spec.status();
    // describe() knows this node without the ends of the class. The group fails at `deadline` if ranks of
    // this node have not come back by then.
    spec.value().nodes[spec.value().me] = self_for(spec.value().group_class);
    spec.value().deadline = Deadline::after_ms(restart_ms());
    // Fails if the key or the id is that of another group. Later ranks' memory is the same file and is
    // not mapped again.
    HDT_RETURN_IF_ERROR(maker_->on_adopted(*group.group, request.engine,
                                           static_cast<uint32_t>(client->credentials.pid),
                                           client->credentials.uid));
    const GroupSpec others = spec.value();
    engine->post([engine, shared = std::make_shared<GroupSpec>(spec.take())] {
      engine->create_group(std::move(*shared));
    });
    // The other nodes are searched at once, before all ranks of this node are back: both take time.
    for (uint32_t node = 0; node < others.nodes.size(); ++node) {
      if (node == others.me) continue;
      rediscovery_->begin(Successor{group.id, others.me, node, others.group_class,
                                    live_.of(others.group_class), self_for(others.group_class)},
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
  engine->post([engine, session, handle = request.handle, id = group.id, local = request.local_index] {
    engine->sessions().attach(session, handle, id, local);
  });
  HDT_LOG_INFO("group {} adopted from pid {} {}", short_id(group.id), client->credentials.pid,
               LogTag{.node = node_.name});
  return Status::ok();
}

// Answers in three steps. 1. Is the sender the node that it names? 2. Do both know the same settings of
// the class? If not, the older ones are replaced first, here or there, and the other node asks again. 3.
// Does an engine have the group? If none has, it may still be adopted while this daemon is young, as it
// may have been started again, too; later it never will be.
void Control::on_successor(ChannelId channel, const Successor& word) {
  if (!network_->is_from(channel, word.node)) {
    HDT_LOG_WARN("a daemon speaks in the name of node {}, which it is not {}", word.node.name,
                 LogTag{.node = node_.name});
    return;
  }
  auto answer = std::make_shared<SuccessorReply>();
  answer->group = word.group;
  answer->from = word.from;
  answer->to = word.to;
  answer->code = Code::kInProgress;
  answer->live = live_.of(word.group_class);
  answer->node = self_for(word.group_class);
  if (answer->live != word.live) {
    const Status taken =
        answer->live < word.live ? take_live_class(word.group_class, word.live) : Status::ok();
    if (!taken.is_ok()) {
      answer->code = taken.code();
      answer->text = cannot_be(word.group_class, word.node, taken);
    }
    return send(channel, *answer);
  }
  // `known` and `answer` are changed on the control thread only. An engine posts its answer before
  // on_every_engine() posts the end, so the end comes after it.
  auto known = std::make_shared<bool>(false);
  on_every_engine(
      [this, word, answer, known](Engine& engine) {
        auto met = engine.successors().meet(word.group, word.to, word.from, answer->node, word.node);
        if (!met) return;
        mailbox_.post([answer, known, met = std::move(*met)] {
          *known = true;
          answer->code = met.failure.code();
          answer->rank = met.rank;
          answer->text = met.failure.message();
        });
      },
      [this, channel, answer, known] {
        if (!*known && now_ns() - started_ns_ >= restart_ms() * kNsPerMs) {
          answer->code = Code::kRankLost;
          answer->text = "node " + node_.name + " does not know the group any more";
        }
        send(channel, *answer);
      });
}

}  // namespace hdt::daemon
