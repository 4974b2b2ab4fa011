#include "daemon/group_maker.h"

#include <algorithm>
#include <cstring>

#include "base/log.h"
#include "daemon/backend_plan.h"
#include "daemon/link_choice.h"
#include "session/page.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kRetryMs = 30;
// The coordinator knows who is missing, so its answer is awaited a little longer than the deadline.
constexpr int64_t kGraceMs = 1'000;

uint64_t group_id(const GroupKey& key) {
  uint64_t id = 0;
  std::memcpy(&id, key.data(), sizeof id);
  return id;
}

}  // namespace

GroupMaker::GroupMaker(NodeInfo node, const Config& config, Services services)
    : node_(std::move(node)), config_(config), services_(std::move(services)) {}

void GroupMaker::on_join(LocalJoin join) {
  const session::JoinRequest& request = join.request;
  if (request.host != 0) {
    const Status listening = services_.listen_at(request.rendezvous);
    if (!listening.is_ok()) return services_.refused(join, listening);
  }
  const auto [entry, is_new] = groups_.try_emplace(request.key);
  Pending& pending = entry->second;
  if (is_new) {
    pending.rendezvous = request.rendezvous;
    pending.group_class = request.group_class;
    pending.until = Deadline::after_ms(request.timeout_ms + kGraceMs);
  } else if (pending.made) {
    return services_.refused(join, {Code::kInvalidUsage, "rank " + std::to_string(request.rank) +
                                                             " joins a group that is complete already"});
  }
  if (pending.joins.contains(request.rank)) {
    return services_.refused(join, {Code::kMismatch, "two processes of node " + node_.name +
                                                         " join as rank " + std::to_string(request.rank)});
  }
  const GroupKey key = request.key;
  LocalJoin& kept = pending.joins.emplace(request.rank, std::move(join)).first->second;
  if (is_new) {
    contact(key, pending);
  } else if (pending.channel != 0) {
    send_join(pending, kept);
  }
}

void GroupMaker::contact(const GroupKey&, Pending& pending) {
  pending.channel = services_.dial(pending.rendezvous);
  pending.retry_at = Deadline::never();
  for (const auto& [rank, join] : pending.joins) send_join(pending, join);
}

void GroupMaker::send_join(Pending& pending, const LocalJoin& join) {
  const auto& r = join.request;
  services_.send(pending.channel,
                 Join{r.key, r.ranks, r.rank, r.group_class, configured_algorithm(r.group_class), r.timeout_ms,
                      NodeInfo{node_.id, node_.name, node_.address, services_.rails_for(r.group_class)}});
}

std::optional<collectives::Algorithm> GroupMaker::configured_algorithm(const std::string& group_class) const {
  return collectives::parse_algorithm(config_.class_named(group_class).algorithm);
}

void GroupMaker::refuse(const GroupKey& key, const Status& why) {
  const auto found = groups_.find(key);
  if (found == groups_.end()) return;
  const Pending pending = std::move(found->second);
  groups_.erase(found);
  for (const auto& [rank, join] : pending.joins) services_.refused(join, why);
}

void GroupMaker::on_session_gone(uint64_t session, const std::string& how) {
  for (auto& [key, pending] : groups_) {
    if (pending.made) continue;  // the engine finds out when the rank is attached
    std::erase_if(pending.joins, [&](const auto& entry) {
      if (entry.second.session != session) return false;
      const std::string text = "rank " + std::to_string(entry.first) + " on node " + node_.name + " " + how +
                               " while the group was made";
      if (pending.channel != 0) services_.send(pending.channel, Cancel{key, entry.first, text});
      return true;
    });
  }
  std::erase_if(groups_, [](const auto& entry) { return entry.second.joins.empty(); });
}

void GroupMaker::on_membership(const Membership& membership) {
  const auto found = groups_.find(membership.key);
  if (found == groups_.end() || found->second.made) return;
  Pending& pending = found->second;
  MadeGroup made;
  auto spec = prepare(membership, pending, made);
  if (!spec.is_ok()) {
    const Status why = spec.status();
    services_.send(pending.channel, Outcome{membership.key, why.code(), -1, why.message()});
    return refuse(membership.key, why);
  }
  pending.made = made;
  services_.create(made.engine, spec.take());
}

Result<GroupSpec> GroupMaker::prepare(const Membership& membership, const Pending& pending, MadeGroup& made) {
  const auto me = std::find_if(membership.nodes.begin(), membership.nodes.end(),
                               [&](const NodeInfo& node) { return node.id == node_.id; });
  if (me == membership.nodes.end())
    return Status(Code::kInternal, "the coordinator made a group without this node");
  GroupSpec spec;
  spec.id = group_id(membership.key);
  spec.group_class = membership.group_class;
  spec.algorithm = configured_algorithm(membership.group_class);
  spec.node_of_rank = membership.node_of_rank;
  spec.nodes = membership.nodes;
  spec.me = static_cast<uint32_t>(me - membership.nodes.begin());
  std::vector<uint32_t> local;
  for (uint32_t rank = 0; rank < spec.node_of_rank.size(); ++rank) {
    if (spec.node_of_rank[rank] == spec.me) local.push_back(rank);
  }
  const bool same = std::equal(local.begin(), local.end(), pending.joins.begin(), pending.joins.end(),
                               [](uint32_t rank, const auto& entry) { return rank == entry.first; });
  if (!same)
    return Status(Code::kRankLost, "a rank of node " + node_.name + " ended while the group was made");
  if (local.size() > session::kMaxLocalRanks) {
    return Status(Code::kInvalidArgument, "node " + node_.name + " has " + std::to_string(local.size()) +
                                              " ranks of the group; at most " +
                                              std::to_string(session::kMaxLocalRanks) + " are possible");
  }
  const auto backends = config_.class_named(spec.group_class).backends;
  if (spec.nodes.size() > 1 && backends == std::vector<std::string>{kSharedMemory}) {
    return Status(Code::kNoBackend, "class " + spec.group_class + " of node " + node_.name +
                                        " has only the backend shm, which does not reach node " +
                                        spec.nodes[spec.me == 0 ? 1 : 0].name);
  }
  for (const NodeInfo& node : spec.nodes) {
    const std::string wrong = &node == &spec.nodes[spec.me] ? "" : misfit(spec.nodes[spec.me], node, spec.group_class);
    if (!wrong.empty()) return Status(Code::kNoBackend, wrong);
  }
  size_t engines = session::kMaxEngines;
  for (const NodeInfo& node : spec.nodes) engines = std::min(engines, node.rails.size());
  const session::Layout layout(static_cast<uint32_t>(spec.node_of_rank.size()),
                               static_cast<uint32_t>(spec.nodes.size()), static_cast<uint32_t>(local.size()));
  auto memory =
      SharedMemory::create(fmt::format("hdt-group-{:08x}", static_cast<uint32_t>(spec.id)), layout.total);
  if (!memory.is_ok()) return memory.status();
  made.id = spec.id;
  made.engine = static_cast<uint32_t>(spec.id % engines);
  made.memory = std::make_shared<SharedMemory>(memory.take());
  spec.memory = made.memory;
  spec.deadline = pending.until;
  spec.on_ready = [this, key = membership.key](const Status& status) {
    services_.post([this, key, status] { on_ready(key, status); });
  };
  return spec;
}

void GroupMaker::on_ready(const GroupKey& key, const Status& status) {
  const auto found = groups_.find(key);
  if (found == groups_.end()) return;
  const Pending& pending = found->second;
  services_.send(pending.channel, Outcome{key, status.code(), -1, status.message()});
  if (!status.is_ok()) return refuse(key, status);
  const Pending done = std::move(found->second);
  groups_.erase(found);
  uint32_t local = 0;
  for (const auto& [rank, join] : done.joins) services_.joined(join, *done.made, local++);
}

// Bad news from the coordinator: ranks missing, or another node that could not make its part.
void GroupMaker::on_outcome(const Outcome& outcome) {
  const auto found = groups_.find(outcome.key);
  if (found == groups_.end() || outcome.code == Code::kSuccess) return;
  if (found->second.made) {
    services_.fail(found->second.made->engine, found->second.made->id, outcome);  // ends in on_ready
  } else {
    refuse(outcome.key, {outcome.code, outcome.text});
  }
}

void GroupMaker::on_closed(ChannelId channel, const Status& why) {
  for (auto& [key, pending] : groups_) {
    if (pending.channel != channel) continue;
    pending.channel = 0;
    pending.last_error = why.message();
    // Its answer is not needed once the membership is known. Before, the coordinator may just not be up yet.
    if (!pending.made) pending.retry_at = Deadline::after_ms(kRetryMs);
  }
}

void GroupMaker::on_time() {
  std::vector<std::pair<GroupKey, Status>> late;
  for (auto& [key, pending] : groups_) {
    if (pending.made) continue;  // the engine's group has the deadline now
    if (pending.until.expired()) {
      const std::string error = pending.last_error.empty() ? "it does not answer" : pending.last_error;
      late.emplace_back(key, Status(Code::kTimeout, "no group was made: the rendezvous at " +
                                                        pending.rendezvous + " cannot be reached: " + error));
    } else if (pending.retry_at.expired()) {
      contact(key, pending);
    }
  }
  for (const auto& [key, why] : late) refuse(key, why);
}

std::optional<Deadline> GroupMaker::next_time() const {
  std::optional<Deadline> next;
  for (const auto& [key, pending] : groups_) {
    if (pending.made) continue;
    const Deadline time = Deadline::earlier(pending.until, pending.retry_at);
    next = next ? Deadline::earlier(*next, time) : time;
  }
  return next;
}

std::vector<MakingFacts> GroupMaker::making() const {
  std::vector<MakingFacts> all;
  for (const auto& [key, pending] : groups_) {
    MakingFacts& facts = all.emplace_back();
    facts.id = id_text(group_id(key));
    facts.group_class = pending.group_class;
    facts.rendezvous = pending.rendezvous;
    facts.last_error = pending.last_error;
    facts.complete = pending.made.has_value();
    facts.left_ns = pending.until.is_never() ? -1 : pending.until.remaining_ns();
    for (const auto& [rank, join] : pending.joins) {
      facts.ranks = join.request.ranks;
      facts.joined.push_back({rank, node_.name});
    }
  }
  return all;
}

}  // namespace hdt::daemon
