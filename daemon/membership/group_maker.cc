#include "daemon/membership/group_maker.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>

#include "base/address.h"
#include "base/codec.h"
#include "base/contained.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/saturate.h"
#include "daemon/links/backend_plan.h"
#include "daemon/links/link_choice.h"
#include "daemon/links/own_host.h"
#include "daemon/protocol/facts.h"
#include "ipc/wake_page.h"

namespace hdt::daemon {

namespace {

// Rank 0's daemon may not listen yet. It is dialled again, soon at first.
constexpr int64_t kFirstRetryMs = 30;
constexpr int64_t kMaxRetryMs = 500;
// The daemon of a unique id runs already: whoever has dialled its loopback addresses in vain for so long
// is on another host.
constexpr int64_t kElsewhereMs = 400;
// The coordinator knows which ranks are missing, so its answer is awaited a little longer than the
// deadline.
constexpr int64_t kGraceMs = 1'000;
// Two jobs of one user that start together at one address may have been mixed up. If another process
// comes to the address this soon after the group was made, the group is failed; later the newcomer is
// refused and the group goes on.
constexpr int64_t kYoungNs = kNsPerSecond;
// Ports below it are root's.
constexpr uint16_t kFirstUserPort = 1'024;

// At an address that everybody can guess only ranks of one user meet: the user is mixed into the key.
Result<GroupKey> key_for_user(const GroupKey& key, uint32_t uid) {
  const auto text = Writer().bytes(key).number(uid).take();
  const auto digest = sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  if (!digest.is_ok()) return digest.status();
  GroupKey mixed{};
  std::memcpy(mixed.data(), digest.value().data(), mixed.size());
  return mixed;
}

std::string process_text(uint32_t pid, uint32_t uid) { return fmt::format("pid {} of user {}", pid, uid); }

// The joins of a node are sorted by rank, and so are its ranks in the group.
void number_ranks(std::map<uint32_t, LocalJoin>& joins) {
  uint32_t local = 0;
  for (auto& [rank, join] : joins) join.local = local++;
}

std::string local_time(int64_t seconds) {
  const auto time = static_cast<time_t>(seconds);
  tm parts{};
  ::localtime_r(&time, &parts);
  std::array<char, 32> text{};
  return {text.data(), ::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &parts)};
}

}  // namespace

GroupMaker::GroupMaker(NodeInfo node, const Config& config, Channels& channels, GroupMakerUser& user)
    : node_(std::move(node)), config_(config), channels_(channels), user_(user) {}

// A group that has just been made at an address may have ranks of two jobs in it, so it fails as well.
std::optional<Status> GroupMaker::taken(const GroupKey& key, ipc::Meeting meeting,
                                        const std::string& joiner) {
  const auto found = living_.find(key);
  if (found == living_.end()) return std::nullopt;
  const Living& group = found->second;
  if (meeting != ipc::Meeting::kAddress) {
    return Status(Code::kInvalidUsage, fmt::format("the group exists already, since {}, with {}: a unique id "
                                                   "makes one group",
                                                   local_time(group.made_at), group.who));
  }
  const std::string mend = "give each job another port, or an HDT_JOB_SECRET of its own";
  if (group.made_ns != 0 && now_ns() - group.made_ns < kYoungNs) {
    const std::string text = fmt::format(
        "two jobs of one user start at {} at the same time ({}, and now {}), so ranks may have been "
        "mixed up: {}",
        group.place, group.who, joiner, mend);
    user_.fail(group.engine, group.id, Outcome{key, Code::kMismatch, -1, text});
    return Status(Code::kMismatch, text);
  }
  return Status(Code::kInvalidUsage, fmt::format("another job has met at {}: {}, since {}; {}", group.place,
                                                 group.who, local_time(group.made_at), mend));
}

void GroupMaker::on_join(LocalJoin join) {
  ipc::JoinRequest& request = join.request;
  if (request.meeting == ipc::Meeting::kAddress) {
    const auto mixed = key_for_user(request.key, join.uid);
    if (!mixed.is_ok()) return user_.refused(join, mixed.status());
    request.key = mixed.value();
  }
  const GroupKey key = request.key;
  // 1. The key may be that of a living group, or of one that was refused while this process existed.
  const std::string joiner = process_text(join.pid, join.uid);
  if (const auto why = taken(key, request.meeting, joiner)) return user_.refused(join, *why);
  if (const auto why = refused_.find(key, request.process_age_ms)) return user_.refused(join, *why);
  // 2. The first rank of a key determines what the group needs; later ones must be of the same user.
  const auto [entry, is_new] = groups_.try_emplace(key);
  Pending& pending = entry->second;
  if (is_new) {
    pending.rendezvous = request.rendezvous;
    pending.group_class = request.group_class;
    pending.meeting = request.meeting;
    pending.place = request.place.empty() ? request.rendezvous : request.place;
    pending.until = Deadline::after_ms(saturating_add(request.timeout_ms, kGraceMs));
    pending.retry_ms = kFirstRetryMs;
    // If loopback addresses are configured for this daemon, the other nodes are on this host, too.
    const auto& named = config_.nics.addresses;
    const bool knows_others = named.empty() || !is_loopback(named.front());
    if (knows_others && DaemonAddress::parse(request.rendezvous).id && all_loopback(request.rendezvous))
      pending.elsewhere_at = Deadline::after_ms(kElsewhereMs);
    if (const Status claimed = claim_group(pending, join); !claimed.is_ok()) {
      groups_.erase(entry);
      return user_.refused(join, claimed);
    }
  } else if (pending.uid != join.uid) {
    return user_.refused(
        join,
        {Code::kInvalidUsage,
         fmt::format(
             "the group belongs to user {} on node {}, as that is whose rank joined first; {} cannot join it",
             pending.uid, node_.name, joiner)});
  }
  // 3. The rank comes twice, or the group is complete. At an address that may be two jobs: none is made.
  auto same_rank = pending.joins.find(request.rank);
  // `rank`: the one that a group which is made has failed by; -1: no one rank.
  const auto end_for_all = [&](const Status& why, int32_t rank) {
    user_.refused(join, why);
    if (pending.made)  // ends in on_ready
      return user_.fail(pending.made->engine, pending.made->id,
                        Outcome{key, why.code(), rank, why.message()});
    if (pending.channel != 0)
      channels_.send(pending.channel, Cancel{key, why.code(), request.rank, why.message()});
    refuse(key, why);
  };
  // A rank that has declined does not come again, so this one belongs to another run of the job.
  if (same_rank != pending.joins.end() && same_rank->second.request.code != Code::kSuccess && !pending.made) {
    user_.refused(same_rank->second, {Code::kMismatch, "the rank has come again"});
    pending.joins.erase(std::exchange(same_rank, pending.joins.end()));
  }
  // A rank that waits has found that there is nothing to wait for, e.g. as the group has failed that this one
  // is split off from. That holds for all.
  if (same_rank != pending.joins.end() && request.code != Code::kSuccess &&
      same_rank->second.session == join.session) {
    return end_for_all({request.code, request.text}, static_cast<int32_t>(request.rank));
  }
  if (pending.made || same_rank != pending.joins.end()) {
    const bool complete = pending.made && same_rank == pending.joins.end();
    const std::string text =
        complete
            ? fmt::format("rank {} joins a group that is complete already", request.rank)
            : fmt::format("two processes of node {} join as rank {}: {} and {}", node_.name, request.rank,
                          process_text(same_rank->second.pid, same_rank->second.uid), joiner);
    if (pending.meeting != ipc::Meeting::kAddress)
      return user_.refused(join, {complete ? Code::kInvalidUsage : Code::kMismatch, text});
    const Status why(Code::kMismatch, fmt::format("{}. Two jobs meet at {}: give each another port, or an "
                                                  "HDT_JOB_SECRET of its own",
                                                  text, pending.place));
    return end_for_all(why, -1);
  }
  // 4. Rank 0 is here: listen at the meeting place before dialling it.
  if (request.host != ipc::Hosting::kNone && !pending.hosted) {
    auto place = place_for(join);
    const Status listening = place.is_ok() ? user_.host(place.value()) : place.status();
    if (!listening.is_ok()) {
      const Status why(listening.code(),
                       "no group was made at " + pending.place + ": " + listening.message());
      pending.joins.emplace(request.rank, std::move(join));
      return refuse(key, why);
    }
    pending.hosted = place.take();
  }
  LocalJoin& kept = pending.joins.emplace(request.rank, std::move(join)).first->second;
  if (is_new) {
    contact(key, pending);
  } else if (pending.channel != 0) {
    send_join(pending, kept);
  }
}

Status GroupMaker::claim_group(Pending& pending, const LocalJoin& join) {
  pending.uid = join.uid;
  auto making = user_.claim(join.uid, UserLimits::What::kMaking);
  if (!making.is_ok()) return making.status();
  auto group = user_.claim(join.uid, UserLimits::What::kGroups);
  if (!group.is_ok()) return group.status();
  pending.making_claim = making.take();
  pending.group_claim = group.take();
  return Status::ok();
}

Result<HostedPlace> GroupMaker::place_for(const LocalJoin& join) {
  HostedPlace place{join.request.rendezvous, join.request.host == ipc::Hosting::kListenOnNics, nullptr};
  const uint16_t port = port_of(join.request.rendezvous);
  if (join.uid != 0 && port != 0 && port < kFirstUserPort) {
    return Status(Code::kInvalidUsage,
                  fmt::format("a job of user {} cannot meet at port {}: ports below {} are root's", join.uid,
                              port, kFirstUserPort));
  }
  auto claim = user_.claim(join.uid, UserLimits::What::kListeners);
  if (!claim.is_ok()) return claim.status();
  place.claim = claim.take();
  return place;
}

void GroupMaker::contact(const GroupKey&, Pending& pending) {
  // Every host may have the address that ranks meet at: if rank 0 is not here, another node is meant.
  const bool by_address = pending.meeting == ipc::Meeting::kAddress;
  pending.channel = channels_.dial(pending.rendezvous,
                                   by_address ? std::optional(pending.hosted.has_value()) : std::nullopt);
  pending.retry_at = Deadline::never();
  for (const auto& [rank, join] : pending.joins) send_join(pending, join);
}

void GroupMaker::send_join(Pending& pending, const LocalJoin& join) {
  const auto& r = join.request;
  const auto send = [&] {
    channels_.send(
        pending.channel,
        Join{r.key, r.ranks, r.rank, r.group_class, configured_algorithm(r.group_class), r.timeout_ms,
             NodeInfo{node_.id, node_.name, node_.address, user_.rails_for(r.group_class)}, r.meeting,
             join.pid, join.uid, r.process_age_ms, r.code, r.text});
  };
  (void)contained("a join", send, [&](const std::string&) { channels_.give_up(pending.channel); });
}

void GroupMaker::release(Pending& pending) {
  if (pending.channel != 0) channels_.finish(std::exchange(pending.channel, 0));
  if (pending.hosted) user_.leave(*pending.hosted);
  pending.hosted.reset();
}

std::optional<collectives::Algorithm> GroupMaker::configured_algorithm(const std::string& group_class) const {
  return collectives::parse_algorithm(config_.class_named(group_class).algorithm);
}

void GroupMaker::refuse(const GroupKey& key, const Status& why) {
  auto entry = groups_.extract(key);
  if (entry.empty()) return;
  Pending& pending = entry.mapped();
  // All ranks must be answered, whatever else fails: so each step before it is contained by itself.
  if (pending.meeting != ipc::Meeting::kAgain)
    (void)contained("the memory of a refusal", [&] { refused_.remember(key, why); });
  (void)contained("a group that is not made", [&] { release(pending); });
  for (const auto& [rank, join] : pending.joins) user_.refused(join, why);
  if (!pending.given_up) return;
  number_ranks(pending.joins);
  unseated_.insert(std::move(entry));
  tell_failed();
}

void GroupMaker::on_session_ended(uint64_t session, const std::string& how) {
  for (auto& group : groups_) {
    auto& pending = group.second;
    if (pending.made) continue;  // the engine finds out when the rank is attached
    std::erase_if(pending.joins, [&](const auto& entry) {
      // The refusal of a rank that declines counts, whether its process lives on or not.
      if (entry.second.session != session || entry.second.request.code != Code::kSuccess) return false;
      const std::string text = "rank " + std::to_string(entry.first) + " on node " + node_.name + " " + how +
                               " while the group was made";
      if (pending.channel != 0)
        channels_.send(pending.channel, Cancel{group.first, Code::kRankLost, entry.first, text});
      return true;
    });
  }
  for (auto entry = groups_.begin(); entry != groups_.end();) {
    if (!entry->second.joins.empty()) {
      ++entry;
      continue;
    }
    release(entry->second);
    entry = groups_.erase(entry);
  }
}

bool GroupMaker::has_id(uint64_t id) const {
  return std::any_of(living_.begin(), living_.end(),
                     [id](const auto& entry) { return entry.second.id == id; }) ||
         std::any_of(groups_.begin(), groups_.end(),
                     [id](const auto& entry) { return entry.second.made && entry.second.made->id == id; });
}

void GroupMaker::on_membership(ChannelId from, const Membership& membership) {
  const auto found = groups_.find(membership.key);
  if (found == groups_.end() || found->second.made || found->second.channel != from) return;
  // Without memory for the group the connection is ended: from that the coordinator learns it and informs
  // the other nodes.
  (void)contained(
      "a membership", [&] { make(membership, found->second); },
      [&](const std::string& why) {
        channels_.give_up(from);
        refuse(membership.key, {Code::kInternal, "the daemon could not make the group: " + why});
      });
}

void GroupMaker::make(const Membership& membership, Pending& pending) {
  MadeGroup made;
  auto spec = prepare(membership, pending, made);
  if (!spec.is_ok()) {
    const Status why = spec.status();
    channels_.send(pending.channel, Outcome{membership.key, why.code(), -1, why.message()});
    return refuse(membership.key, why);
  }
  pending.made = made;
  user_.create(made.engine, spec.take());
}

Result<GroupSpec> GroupMaker::prepare(const Membership& membership, const Pending& pending, MadeGroup& made) {
  const auto me = std::find_if(membership.nodes.begin(), membership.nodes.end(),
                               [&](const NodeInfo& node) { return node.id == node_.id; });
  if (me == membership.nodes.end())
    return Status(Code::kInternal, "the coordinator made a group without this node");
  GroupSpec spec;
  spec.id = group_id(membership.secret);
  // Ids are drawn at random by the coordinator. One that is in use was chosen, and frames for it could be
  // taken for the other group's.
  if (has_id(spec.id))
    return Status(Code::kInvalidUsage,
                  "the coordinator gave the group an id that another group of this node has");
  spec.meeting_key = membership.key;
  spec.group_class = membership.group_class;
  spec.algorithm = configured_algorithm(membership.group_class);
  spec.node_of_rank = membership.node_of_rank;
  spec.nodes = membership.nodes;
  spec.me = static_cast<uint32_t>(me - membership.nodes.begin());
  std::vector<uint32_t> local;
  for (uint32_t rank = 0; rank < spec.node_of_rank.size(); ++rank) {
    if (spec.node_of_rank[rank] == spec.me) local.push_back(rank);
  }
  // The ranks that still wait here must be those of the Membership: one may have ended meanwhile.
  const bool same = std::equal(local.begin(), local.end(), pending.joins.begin(), pending.joins.end(),
                               [](uint32_t rank, const auto& entry) { return rank == entry.first; });
  if (!same)
    return Status(Code::kRankLost, "a rank of node " + node_.name + " ended while the group was made");
  if (local.size() > ipc::kMaxLocalRanks) {
    return Status(Code::kInvalidArgument, "node " + node_.name + " has " + std::to_string(local.size()) +
                                              " ranks of the group; at most " +
                                              std::to_string(ipc::kMaxLocalRanks) + " are possible");
  }
  const auto backends = config_.class_named(spec.group_class).backends;
  if (spec.nodes.size() > 1 && backends == std::vector<std::string>{kSharedMemory}) {
    return Status(Code::kNoBackend, "class " + spec.group_class + " of node " + node_.name +
                                        " has only the backend shm, which does not reach node " +
                                        spec.nodes[spec.me == 0 ? 1 : 0].name);
  }
  for (const NodeInfo& node : spec.nodes) {
    const std::string wrong =
        &node == &spec.nodes[spec.me] ? "" : misfit(spec.nodes[spec.me], node, spec.group_class);
    if (!wrong.empty()) return Status(Code::kNoBackend, wrong);
  }
  // Every node computes the same engine from the id. Links connect engines of one index, so only an index
  // that all nodes have will do.
  size_t engines = ipc::kMaxEngines;
  for (const NodeInfo& node : spec.nodes) engines = std::min(engines, node.rails.size());
  const ipc::Layout layout(static_cast<uint32_t>(spec.node_of_rank.size()),
                           static_cast<uint32_t>(spec.nodes.size()), static_cast<uint32_t>(local.size()));
  auto memory = SharedMemory::create("hdt-group-" + short_id(spec.id), layout.total);
  if (!memory.is_ok()) return memory.status();
  made.id = spec.id;
  made.secret = membership.secret;
  made.engine = static_cast<uint32_t>(spec.id % engines);
  made.memory = std::make_shared<SharedMemory>(memory.take());
  spec.memory = made.memory;
  spec.deadline = pending.until;
  spec.on_ready = [this, key = membership.key](const Status& status) {
    user_.post([this, key, status] { on_ready(key, status); });
  };
  return spec;
}

void GroupMaker::on_ready(const GroupKey& key, const Status& status) {
  (void)contained(
      "a group that was made", [&] { take_up(key, status); },
      [&](const std::string& why) { give_up(key, why); });
}

void GroupMaker::take_up(const GroupKey& key, const Status& status) {
  const auto found = groups_.find(key);
  if (found == groups_.end()) return;
  Pending& pending = found->second;
  if (pending.channel != 0)
    channels_.send(pending.channel, Outcome{key, status.code(), -1, status.message()});
  if (!status.is_ok()) return refuse(key, status);
  const LocalJoin& first = pending.joins.begin()->second;
  Living living{pending.made->id,
                pending.made->engine,
                fmt::format("{} (rank {} of {}) on node {}", process_text(first.pid, first.uid),
                            first.request.rank, first.request.ranks, node_.name),
                pending.place,
                ::time(nullptr),
                now_ns(),
                std::exchange(pending.hosted, std::nullopt),
                std::move(pending.group_claim)};
  living_.insert_or_assign(key, std::move(living));
  // From here on the key names a living group. Each rank is answered whatever happens to the other ones.
  auto entry = groups_.extract(found);
  Pending& done = entry.mapped();
  (void)contained("a group that was made", [&] { release(done); });
  number_ranks(done.joins);
  std::erase_if(done.joins, [&](const auto& join) { return user_.joined(join.second, *done.made); });
  if (!done.joins.empty()) unseated_.insert(std::move(entry));
}

// The ranks met at a place of the predecessor. Nobody listens there any more, so a job that meets there
// later is refused on this node only.
Status GroupMaker::on_adopted(const ipc::Description& group, uint32_t engine, uint32_t pid, uint32_t uid) {
  if (has_id(group.group)) return {Code::kInvalidUsage, "another group of this node has its id"};
  Living living{
      group.group,        engine,        fmt::format("{} on node {}", process_text(pid, uid), node_.name),
      "the same address", group.made_at, 0,
      std::nullopt,       nullptr};
  if (groups_.contains(group.meeting_key) || !living_.emplace(group.meeting_key, std::move(living)).second)
    return {Code::kInvalidUsage, "another group of this node met by its key"};
  return Status::ok();
}

// The coordinator reports that ranks are missing, or that another node could not make its part.
void GroupMaker::on_outcome(ChannelId from, const Outcome& outcome) {
  const auto found = groups_.find(outcome.key);
  if (found == groups_.end() || outcome.code == Code::kSuccess || found->second.channel != from) return;
  if (found->second.made) {
    Pending& pending = found->second;
    (void)contained(
        "the failure of a group",
        [&] { user_.fail(pending.made->engine, pending.made->id, outcome); },  // ends in on_ready
        [&](const std::string&) { pending.to_fail = outcome.code; });
  } else {
    refuse(outcome.key, {outcome.code, outcome.text});
  }
}

void GroupMaker::on_closed(ChannelId channel, const Status& why) {
  // One of both daemons is at a limit, or another host is meant and this daemon has no peers there.
  // Dialling again would not help, so the ranks are answered now and not at their deadline.
  std::vector<std::pair<GroupKey, Status>> refused;
  for (const auto& [key, pending] : groups_) {
    if (pending.channel != channel || pending.made) continue;
    if (why.code() == Code::kSystem || why.code() == Code::kConfig) {
      refused.emplace_back(key, Status(why.code(), "no group was made: " + why.message()));
    } else if (pending.elsewhere_at.expired()) {
      refused.emplace_back(key,
                           Status(Code::kConfig,
                                  "no group was made: rank 0's daemon has peers on its own host only, and "
                                  "is not on this one (" +
                                      why.message() + "); " + how_to_have_peers()));
    }
  }
  for (const auto& [key, status] : refused) refuse(key, status);
  for (auto& [key, pending] : groups_) {
    if (pending.channel != channel) continue;
    pending.last_error = why.message();
    pending.channel = 0;
    // The coordinator is not needed once the Membership has come. Before that it may just not be up yet.
    if (pending.made) continue;
    pending.retry_at = Deadline::after_ms(pending.retry_ms);
    pending.retry_ms = std::min(2 * pending.retry_ms, kMaxRetryMs);
  }
}

void GroupMaker::on_time() {
  tell_failed();
  std::vector<std::pair<GroupKey, Status>> late;
  for (auto& [key, pending] : groups_) {
    if (pending.made) {  // the engine's group has the deadline now
      if (pending.to_fail == Code::kSuccess) continue;
      user_.fail(pending.made->engine, pending.made->id,
                 Outcome{key, pending.to_fail, -1, "the group is not made"});
      pending.to_fail = Code::kSuccess;
      continue;
    }
    if (pending.until.expired()) {
      const std::string error = pending.last_error.empty() ? "it does not answer" : pending.last_error;
      late.emplace_back(key,
                        Status(Code::kTimeout, "no group was made: rank 0's daemon cannot be reached at " +
                                                   pending.place + ": " + error));
    } else if (pending.retry_at.expired()) {
      contact(key, pending);
    }
  }
  for (const auto& [key, why] : late) refuse(key, why);
}

}  // namespace hdt::daemon
