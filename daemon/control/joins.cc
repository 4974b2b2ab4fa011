// joins.cc: see joins.h.
#include "daemon/control/joins.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/address.h"
#include "base/contained.h"
#include "base/log.h"
#include "transports/net/subnet.h"

namespace hdt::daemon {

// A claim for the seat is taken before anything is done for the request, and it is given back by whichever
// path ends it.
void Joins::on_join(uint64_t session, const ipc::JoinRequest& request) {
  // Until the join is answered joining_ holds it, with the claim for the seat.
  if (daemon_.leaving)
    return refuse(session, request.request,
                  {Code::kInProgress, "the daemon ends; its successor is to be asked"});
  const PeerCredentials& who = daemon_.sessions->find(session)->credentials;
  const std::pair<uint64_t, uint32_t> number{session, request.request};
  auto claim = daemon_.limits->claim(who.uid, UserLimits::What::kSeats);
  if (!claim.is_ok()) return refuse(session, request.request, claim.status());
  if (joining_.contains(number)) {
    return refuse(session, request.request,
                  {Code::kInvalidUsage, "a join with this request's number is under way"});
  }
  joining_[number] = {request, std::make_shared<UserLimits::Claim>(claim.take())};
  // From here GroupMaker answers, by joined() and refused().
  daemon_.maker->on_join({session, request, static_cast<uint32_t>(who.pid), who.uid});
}

// The process is still connected and may ask again.
void Joins::refuse(uint64_t session, uint32_t request, const Status& why) {
  ipc::Joined answer;
  answer.request = request;
  answer.code = why.code();
  answer.text = why.message();
  daemon_.sessions->send(session, ipc::encode(answer));
}

// Their claims are given back with the entries. GroupMaker hears of the session's end by itself
// (Requests::on_session_ended()).
void Joins::on_session_ended(uint64_t session) {
  std::erase_if(joining_, [session](const auto& entry) { return entry.first.first == session; });
}

// A Join must be made by the daemon of its node, must not mix users where an embedded daemon serves one,
// and must not have the key of a living group of this node. The last is asked here because Rendezvous
// forgets a group when it is made.
void Joins::on_join_message(ChannelId channel, const Join& join) {
  std::optional<Status> why;
  if (!daemon_.network->is_from(channel, join.node)) {
    // A daemon speaks for its own node only.
    why = Status(Code::kInvalidUsage, "a daemon that is not node " + join.node.name + " joins in its name");
  } else if (join.meeting == ipc::Meeting::kAddress && daemon_.host_pid != 0 && join.uid != ::geteuid()) {
    why = Status(
        Code::kInvalidUsage,
        fmt::format("rank {} (pid {} of user {} on node {}) meets a daemon that serves jobs of user {} only: "
                    "ranks of different users need the same HDT_JOB_SECRET",
                    join.rank, join.pid, join.uid, join.node.name, ::geteuid()));
  } else {
    why =
        daemon_.maker->taken(join.key, join.meeting,
                             fmt::format("pid {} of user {} on node {}", join.pid, join.uid, join.node.name));
  }
  // The rank's daemon gets an Outcome in either case, now or later.
  if (!why) return daemon_.reply(daemon_.rendezvous.on_join(channel, join));
  daemon_.reply({{channel, Outcome{join.key, why->code(), -1, why->message()}}});
}

// By the pid of the socket's peer, as the kernel reports it. A process of another PID namespace has no
// pid here, and is not the host.
bool Joins::is_host(uint64_t session) const {
  const ClientSession* client = daemon_.sessions->find(session);
  return client != nullptr && daemon_.host_pid != 0 &&
         static_cast<uint32_t>(client->credentials.pid) == daemon_.host_pid;
}

// An embedded daemon's host does not count: it ends with the daemon.
bool Joins::others_join() const {
  return std::any_of(joining_.begin(), joining_.end(),
                     [this](const auto& entry) { return !is_host(entry.first.first); });
}

// These ranks cannot be referred to a successor: another daemon has their joins, and knows this daemon
// only.
bool Joins::others_join_elsewhere() const {
  return std::any_of(joining_.begin(), joining_.end(), [this](const auto& entry) {
    return !is_host(entry.first.first) && !coordinates(entry.second.request);
  });
}

// A rank that waits for such a group can as well ask the successor: that one has this daemon's address, and
// the daemons of other nodes dial it again.
bool Joins::coordinates(const ipc::JoinRequest& request) const {
  return request.host != ipc::Hosting::kNone || daemon_.network->listens_at(request.rendezvous);
}

// The code tells libhdt to ask again; the process finds the successor at the same socket.
void Joins::refer_to_successor() {
  for (const auto& [who, joining] : joining_) {
    if (coordinates(joining.request))
      refuse(who.first, who.second, {Code::kInProgress, "the daemon ends; its successor is to be asked"});
  }
}

// The claims of meeting places whose sockets stay open for late ranks; a user cannot evade its limit by
// leaving and opening places in turn. In the order of their times, as all wait equally long.
void Joins::on_time() {
  while (!late_places_.empty() && late_places_.front().first.expired()) late_places_.pop_front();
}

// GroupMaker asks by this interface, so that it needs no network of its own.
Status Joins::host(const HostedPlace& place) {
  return daemon_.network->host_place(place.addresses, place.on_nics);
}

// The place's claim lives as long as its sockets do.
void Joins::leave(const HostedPlace& place) {
  daemon_.network->leave_place(place.addresses, place.on_nics);
  if (place.claim != nullptr) late_places_.emplace_back(Deadline::after_ms(kLateMs), place.claim);
}

// Shared by whoever holds a part of what it stands for; the last one gives it back.
Result<std::shared_ptr<UserLimits::Claim>> Joins::claim(uint32_t uid, UserLimits::What what) {
  auto claim = daemon_.limits->claim(uid, what);
  if (!claim.is_ok()) return claim.status();
  return std::make_shared<UserLimits::Claim>(claim.take());
}

// Whether the group ends with its host is decided now: with a rank of another process it must outlive it.
void Joins::create(uint32_t engine, GroupSpec spec) {
  say_who_can_join(spec.nodes);
  spec.ends_with_host = daemon_.host_pid != 0 && !others_join();
  daemon_.engines.post(engine, [shared = std::make_shared<GroupSpec>(std::move(spec))](Engine& e) {
    e.create_group(std::move(*shared));
  });
}

// Posted behind create(), so the engine knows the group by then.
void Joins::fail(uint32_t engine, uint64_t group, const Outcome& outcome) {
  daemon_.engines.post(
      engine, [group, outcome](Engine& e) { e.fail_group(group, outcome.code, outcome.rank, outcome.text); });
}

// The plan of now; a class change that is under way does not count yet.
std::vector<std::vector<RailEnd>> Joins::rails_for(const std::string& group_class) {
  return daemon_.plan.ends_for(group_class, daemon_.node.rails);
}

// Contained, since a loop over all ranks of a group calls it.
void Joins::refused(const LocalJoin& join, const Status& why) {
  joining_.erase({join.session, join.request.request});
  (void)contained(
      "the answer to a join", [&] { refuse(join.session, join.request.request, why); },
      [&](const std::string&) { daemon_.sessions->hang_up(join.session); });
}

// Contained, as refused().
bool Joins::joined(const LocalJoin& join, const MadeGroup& made) {
  bool reported = true;
  (void)contained(
      "a seat in a group", [&] { take_seat(join, made); },
      [&](const std::string& why) {
        reported = rank_failed(made, join.local);
        const auto refuse = [&] {
          daemon_.sessions->refuse(join.session, Code::kInternal,
                                   "the daemon could not give a rank its seat: " + why);
        };
        (void)contained("the refusal of a session", refuse,
                        [&](const std::string&) { daemon_.sessions->hang_up(join.session); });
      });
  return reported;
}

// The seat goes to session 0, which does not exist. The engine then treats the rank as failed, so that
// nobody waits for it. The group keeps the first failure; a rank that fails after it departs all the same.
bool Joins::rank_failed(const MadeGroup& made, uint32_t local) {
  const auto lose = [id = made.id, local](Engine& engine) { engine.sessions().attach(0, 0, id, local); };
  return contained("a seat that nobody takes", [&] { daemon_.engines.post(made.engine, lose); });
}

// The group is made by now. So whatever fails from here on is the rank's failure, and is reported as such.
void Joins::take_seat(const LocalJoin& join, const MadeGroup& made) {
  const uint32_t local = join.local;
  // The engine is informed first, with the session's handle or without a session: either way the seat's fate
  // is known there. A process whose session has ended meanwhile gets no answer.
  std::shared_ptr<UserLimits::Claim> claim;
  if (auto held = joining_.extract({join.session, join.request.request}))
    claim = std::move(held.mapped().claim);
  ClientSession* client = daemon_.sessions->find(join.session);
  const uint32_t handle = client != nullptr ? client->free_handle() : 0;
  daemon_.engines.post(made.engine, [session = join.session, handle, id = made.id, local](Engine& engine) {
    engine.sessions().attach(session, handle, id, local);
  });
  if (client == nullptr) return;
  // The seat holds the group's memory and the user's claim; both are given back when the session or the
  // group ends.
  client->seats[handle] = {made.engine, made.id, made.memory, std::move(claim)};
  ipc::Joined answer;
  answer.request = join.request.request;
  answer.handle = handle;
  answer.engine = made.engine;
  answer.local_index = local;
  answer.secret = made.secret;
  const std::array<int, 1> fds = {made.memory->fd()};
  daemon_.sessions->send(join.session, ipc::encode(answer), fds);
  if (!daemon_.limits->may_log(client->credentials.uid)) return;
  HDT_LOG_INFO("group {} joined by pid {} {}", short_id(made.id), client->credentials.pid,
               LogTag{.group = join.request.group_class,
                      .rank = static_cast<int>(join.request.rank),
                      .node = daemon_.node.name});
}

// Said once in the life of the daemon.
void Joins::say_who_can_join(const std::vector<NodeInfo>& nodes) {
  if (daemon_.host_pid == 0 || said_who_can_join_ || !daemon_.trust->cluster_key().empty()) return;
  // A node is on another host if the first address of its daemon is none of this host's.
  const auto own = transport::OwnAddresses::now();
  const auto is_outside = [&own](const NodeInfo& node) {
    return own.is_ok() && !own.value().has(host_of(node.address.substr(0, node.address.find(','))));
  };
  if (std::none_of(nodes.begin(), nodes.end(), is_outside)) return;
  said_who_can_join_ = true;
  HDT_LOG_WARN(
      "this job spans hosts and has no secret: whoever reaches its processes' ports can pose as one of them; "
      "give all its ranks the same HDT_JOB_SECRET (any random text), or run hdtcommd with a cluster key");
}

}  // namespace hdt::daemon
