// A group's life in an engine: links, messages, failure, time (the other engine_group_*.cc
// have the rest).
#include "daemon/group/engine_group.h"

#include <algorithm>

#include "base/join.h"
#include "base/log.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kLookMs = 1;  // from look_soon() to the look

GroupContext make_context(GroupSpec& spec, uint32_t group_index) {
  GroupContext context;
  context.id = spec.id;
  context.group_index = group_index;
  context.group_class = spec.group_class;
  context.algorithm = spec.algorithm;
  context.order = ipc::Order(std::move(spec.node_of_rank), static_cast<uint32_t>(spec.nodes.size()));
  context.nodes = std::move(spec.nodes);
  context.me = spec.me;
  const auto ranks = static_cast<uint32_t>(context.order.node_of_rank.size());
  const auto nodes = static_cast<uint32_t>(context.nodes.size());
  for (uint32_t node = 0; node < nodes; ++node) {
    const auto& first = context.order.first_position;
    context.peers.emplace_back().layout =
        ipc::Layout(ranks, nodes, static_cast<uint32_t>(first[node + 1] - first[node]));
    for (uint64_t p = first[node]; node == spec.me && p < first[node + 1]; ++p) {
      context.local_ranks.push_back(context.order.rank_at[p]);
    }
  }
  if (spec.adopted) {  // Adoption::describe() has compared its layout with the spec's
    context.segment = ipc::Segment::view(spec.memory->data(), context.peers[spec.me].layout);
    return context;
  }
  context.segment = ipc::Segment::format(spec.memory->data(), context.peers[spec.me].layout, spec.id,
                                         spec.group_class.c_str(), spec.me);
  context.segment.set_meeting(spec.meeting_key);
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    const uint32_t node = context.order.node_of_rank[rank];
    context.segment.members()[rank] = {
        node, static_cast<uint32_t>(context.order.position_of[rank] - context.order.first_position[node])};
  }
  for (uint32_t node = 0; node < nodes; ++node) {
    context.segment.places()[node].set(context.nodes[node].address);  // its length is limited (node.h)
  }
  return context;
}

std::string list(const std::vector<uint32_t>& ranks) {
  return join(ranks, ", ", [](uint32_t rank) { return std::to_string(rank); });
}

}  // namespace

std::string GroupContext::name() const {
  return fmt::format("group {} (class {})", short_id(id), group_class);
}

EngineGroup::EngineGroup(GroupSpec spec, uint32_t group_index, std::unique_ptr<GroupServices> services)
    : services_(std::move(services)),
      memory_(spec.memory),
      context_(make_context(spec, group_index)),
      chunks_(context_),
      rings_(context_),
      deadline_(spec.deadline),
      on_ready_(std::move(spec.on_ready)),
      restart_ms_(spec.restart_ms),
      own_rates_{spec.memory_rates, std::vector<ipc::LinkRates>(context_.nodes.size())},
      link_told_(context_.nodes.size(), false),
      rates_(context_.nodes.size()),
      seated_(context_.nodes.size(), false),
      local_departed_(context_.local_ranks.size(), false),
      local_end_(context_.local_ranks.size()),
      local_here_(context_.local_ranks.size(), !spec.adopted),
      adopting_(spec.adopted) {
  link_told_[context_.me] = true;
  context_.services = services_.get();
  context_.direct.set_services(*services_);
  context_.fail = [this](Code code, int32_t rank, const std::string& text) { fail(code, rank, text); };
  if (compares_rates()) {
    rate_changes_.emplace(
        static_cast<RateChanges::Group&>(*this), context_.id, context_.me,
        static_cast<uint32_t>(context_.nodes.size()),
        ipc::Journal(context_.segment.journals(), context_.layout().nodes, context_.layout().slots));
  }
  if (adopting_) go_on(spec);
  check_ready();
}

void EngineGroup::on_link_up(uint32_t node, transport::Link& link, const transport::RegionKey& our_region,
                             uint32_t backend) {
  context_.peers[node].link = &link;
  context_.peers[node].backend = backend;
  context_.send(node, GroupHello{context_.id, context_.me, our_region, restart_ms_});
  tell_end(node);
  check_ready();
}

void EngineGroup::offer(uint32_t node, transport::Link& link, const transport::RegionKey& our_region,
                        uint32_t backend) {
  if (context_.failed() || context_.peers[node].link == nullptr) return;
  context_.peers[node].offered = &link;
  context_.peers[node].offered_backend = backend;
  (void)link.send(encode(GroupHello{context_.id, context_.me, our_region, restart_ms_}));
}

void EngineGroup::follow(uint32_t node, transport::Link& link, const transport::RegionKey& our_region,
                         uint32_t backend, const transport::RegionKey& their_region) {
  if (context_.failed() || context_.peers[node].link == nullptr) return;
  (void)link.send(encode(GroupHello{context_.id, context_.me, our_region, restart_ms_}));
  move(node, link, backend, their_region);
}

void EngineGroup::move(uint32_t node, transport::Link& link, uint32_t backend,
                       const transport::RegionKey& their_region) {
  GroupPeer& peer = context_.peers[node];
  peer.offered = nullptr;
  if (peer.link == nullptr) return;  // the group has failed
  (void)peer.link->send(encode(LinkMoved{context_.id}));
  peer.old.push_back({peer.link, peer.writes_in_flight, std::exchange(peer.last_write, 0)});
  const bool knows_seats = peer.link->heard(std::exchange(peer.seat_message, 0));
  peer.link = &link;
  if (!knows_seats) tell_seated(node);
  peer.backend = backend;
  peer.region = their_region;
  peer.writes_in_flight = 0;
  std::erase(peer.moved, &link);
  on_other_nics(node);
  HDT_LOG_INFO("moved to another link to node {} {}", context_.nodes[node].name,
               LogTag{.group = context_.group_class,
                      .op = static_cast<int64_t>(chunks_.calls_entered()),
                      .node = context_.nodes[context_.me].name});
}

void EngineGroup::drop_old_links() {
  for (GroupPeer& peer : context_.peers) {
    std::erase_if(peer.old, [&](const GroupPeer::OldLink& old) {
      const auto moved = std::find(peer.moved.begin(), peer.moved.end(), old.link);
      if (moved == peer.moved.end() || old.writes_in_flight != 0 || chunks_.needs(*old.link) ||
          !old.link->settled()) {
        return false;
      }
      peer.moved.erase(moved);
      chunks_.on_link_dropped(*old.link);
      return true;
    });
    // Nothing follows on an old link with which the peer would acknowledge small writes, and ranks may
    // wait for them.
    const auto waits = [](const GroupPeer::OldLink& old) { return !old.arrived(); };
    if (std::any_of(peer.old.begin(), peer.old.end(), waits)) look_soon();
  }
}

void EngineGroup::on_link_down(uint32_t node, const transport::Link& link, const Status& reason,
                               bool daemon_ended) {
  GroupPeer& peer = context_.peers[node];
  if (peer.suspended && !peer.uses(link)) return;  // a link that was tried meanwhile
  if (peer.offered == &link) {                     // the link in use stays
    peer.offered = nullptr;
    return;
  }
  // A link that is down touches no memory any more, and reports no writes. So none of them is in flight.
  const auto old =
      std::find_if(peer.old.begin(), peer.old.end(), [&](const auto& other) { return other.link == &link; });
  if (old != peer.old.end()) {
    peer.old.erase(old);
  } else {
    peer.link = nullptr;
    peer.seat_message = 0;
    peer.ready = peer.ready && !ready_;
    peer.writes_in_flight = 0;
    peer.last_write = 0;
  }
  chunks_.on_link_down(node, link);
  if (ready_ && peer.takes_part() && !context_.failed() &&
      (peer.suspended || (daemon_ended && peer.restart_ms > 0))) {
    return wait_for(node, reason, peer.restart_ms);
  }
  // A departed node has sent NodeDeparted after everything of its ranks had been carried: nothing is lost
  // with its link. If no rank of this node is left, nobody needs to know of the failure.
  if (!peer.takes_part()) return;
  peer.failed = true;
  if (ready_ && !has_local_ranks()) return;
  const auto rank = static_cast<int32_t>(context_.order.rank_at[context_.order.first_position[node]]);
  const std::string text = about(node) + " has failed: " + reason.message();
  if (!ready_ && on_ready_) {
    fail_here(reason.code(), rank, text);
    return;
  }
  fail(reason.code() == Code::kLink ? Code::kLink : Code::kRankLost, rank, text);
}

std::string EngineGroup::about(uint32_t node) const {
  std::vector<uint32_t> ranks;
  for (uint64_t p = context_.order.first_position[node]; p < context_.order.first_position[node + 1]; ++p) {
    ranks.push_back(context_.order.rank_at[p]);
  }
  return "node " + context_.nodes[node].name + " (rank " + list(ranks) + " of " + context_.name() + ")";
}

void EngineGroup::on_frame(uint32_t node, const Frame& frame, uint64_t bytes) {
  const auto wrong = [&](const char* what) {
    fail(Code::kInternal, -1,
         "node " + context_.nodes[node].name + " sent " + what + " to " + context_.name());
  };
  ++context_.peers[node].arrivals;
  context_.peers[node].arrived_ns = now_ns();
  if (const auto* chunk = std::get_if<ChunkFrame>(&frame)) {
    if (chunk->from != node) return wrong("a chunk in another's name");
    if (!context_.failed()) chunks_.on_arrived(*chunk);
  } else if (const auto* cell = std::get_if<CellFrame>(&frame)) {
    if (bytes < sizeof(ipc::CellHeader) || !context_.is_on(cell->source, node) ||
        !context_.is_on(cell->destination, context_.me)) {
      return wrong("a cell that makes no sense");
    }
    if (!context_.failed()) rings_.on_arrived(*cell);
  }
}

void EngineGroup::on_message(uint32_t node, const EngineMessage& note, const transport::Link& link) {
  GroupPeer& peer = context_.peers[node];
  if (const auto* hello = std::get_if<GroupHello>(&note)) {
    if (peer.offered == &link) return move(node, *peer.offered, peer.offered_backend, hello->region);
    if (peer.link != &link) return;
    peer.region = hello->region;
    peer.restart_ms = hello->restart_ms;
    peer.ready = true;
    if (peer.suspended) tell_state(node);
    check_ready();
  } else if (const auto* state = std::get_if<ChunkState>(&note)) {
    if (state->from != node || !peer.suspended || peer.their_chunks.size() > context_.layout().slots) return;
    auto& tags = peer.their_chunks[state->chunk];
    tags.insert(state->tags.begin(), state->tags.end());
    if (tags.size() > ipc::Journal::most_arrivals(context_.layout().nodes)) return flooded(node);
  } else if (const auto* ring = std::get_if<RingState>(&note)) {
    if (peer.suspended && context_.is_on(ring->source, context_.me) &&
        context_.is_on(ring->destination, node)) {
      peer.their_rings.push_back(*ring);
      const uint64_t most = uint64_t{context_.layout().local_ranks} * peer.layout.local_ranks;
      if (peer.their_rings.size() > most) return flooded(node);
    }
  } else if (const auto* resume = std::get_if<Resume>(&note)) {
    if (resume->from == node && peer.suspended && !context_.failed()) on_resume(node, *resume);
  } else if (std::holds_alternative<LinkMoved>(note)) {
    if (std::find(peer.moved.begin(), peer.moved.end(), &link) == peer.moved.end())
      peer.moved.push_back(&link);
  } else if (const auto* rates = std::get_if<RatesMessage>(&note)) {
    if (rates->from != node || !compares_rates()) return;
    if (rates->rates.links.size() != context_.nodes.size()) {
      return fail(Code::kInternal, -1,
                  "node " + context_.nodes[node].name + " has measured another number of links than " +
                      context_.name() + " has");
    }
    keep_rates(node, rates->rates);
  } else if (const auto* change = std::get_if<RateChangeMessage>(&note)) {
    if (change->from == node) on_rate_change(*change);
  } else if (const auto* all = std::get_if<GroupReady>(&note)) {
    if (all->from == node && peer.link == &link) peer.has_all = true;
    check_ready();
  } else if (const auto* credit = std::get_if<ChunkCredit>(&note)) {
    if (credit->from == node) chunks_.on_message(*credit);
  } else if (const auto* cell = std::get_if<CellCredit>(&note)) {
    if (context_.is_on(cell->source, context_.me) && context_.is_on(cell->destination, node))
      rings_.on_message(*cell);
  } else if (const auto* call = std::get_if<CallMessage>(&note)) {
    if (call->from == node && !context_.failed()) chunks_.on_message(*call);
  } else if (const auto* output = std::get_if<OutputMessage>(&note)) {
    if (output->from == node && !context_.failed()) chunks_.on_message(*output, link);
  } else if (const auto* ended = std::get_if<RingEnded>(&note)) {
    if (context_.is_on(ended->source, node) && context_.is_on(ended->destination, context_.me))
      rings_.on_message(*ended);
  } else if (const auto* departed = std::get_if<RankDeparted>(&note)) {
    if (context_.is_on(departed->rank, node)) {
      rings_.on_rank_departed(departed->rank);
      chunks_.on_rank_departed(departed->rank, departed->entered);
    }
  } else if (std::holds_alternative<GroupSeated>(note)) {
    on_seated(node);
  } else if (std::holds_alternative<NodeDeparted>(note)) {
    peer.departed = true;
  } else if (std::holds_alternative<GroupUnknown>(note)) {
    on_unknown(node);
  } else if (const auto* failed = std::get_if<GroupFailed>(&note)) {
    progress();  // what arrived before it is finished first
    fail_here(failed->code, failed->rank, failed->text);
  }
}

void EngineGroup::on_sent(uint32_t node, const transport::Link& link, const WriteToken& token) {
  GroupPeer& peer = context_.peers[node];
  if (peer.link == &link) --peer.writes_in_flight;
  for (GroupPeer::OldLink& old : peer.old) {
    if (old.link == &link) --old.writes_in_flight;
  }
  if (context_.failed()) return;
  if (token.kind == WriteToken::Kind::kChunk) chunks_.on_sent(token);
  if (token.kind == WriteToken::Kind::kCell) rings_.on_sent(token);
}

bool EngineGroup::progress() {
  give_echoes();
  note_seats();
  bool any = false;
  if (ready_ && !adopting_ && !solo() && !context_.failed()) {
    any = chunks_.progress();
    if (rate_changes_) rate_changes_->on_progress();
    if (any) look_at_nics();
    any |= rings_.progress();
    if (chunks_.awaits_arrivals()) look_soon();
  }
  drop_old_links();
  send_departure();
  return any;
}

void EngineGroup::look_soon() {
  if (look_at_.is_never()) look_at_ = Deadline::after_ms(kLookMs);
}

void EngineGroup::hurry(const std::vector<transport::Link*>& links) {
  for (transport::Link* link : links) link->hurry();
}

void EngineGroup::local_rank_here(uint32_t local, uint32_t user) {
  local_here_[local] = true;
  if (std::find(users_.begin(), users_.end(), user) == users_.end()) users_.push_back(user);
  check_adopted();
}

void EngineGroup::check_adopted() {
  for (uint32_t local = 0; local < local_here_.size(); ++local) {
    if (!local_here_[local] && !local_departed_[local]) return;
  }
  adopting_ = false;
}

void EngineGroup::fail_here(Code code, int32_t rank, const std::string& text) {
  if (!context_.set_failure(code, rank, text)) return;
  HDT_LOG_WARN("failed: {}: {} {}", code_text(code), text,
               LogTag{.group = context_.group_class,
                      .rank = rank,
                      .op = static_cast<int64_t>(chunks_.calls_entered()),
                      .node = context_.nodes[context_.me].name});
  tell_not_made(Status(code, text));
}

void EngineGroup::fail(Code code, int32_t rank, const std::string& text) {
  if (context_.failed()) return;
  fail_here(code, rank, text);
  context_.send_all(GroupFailed{context_.id, code, rank, text});
  told_failure_ = true;
}

void EngineGroup::on_time() {
  if (context_.failed()) {  // sends what there was no memory for
    tell_not_made(context_.failure());
    if (times_given_up_ > 0) tell_failure();
  }
  if (hurry_at_.expired()) send_departure();
  if (look_at_.expired()) {
    look_at_ = Deadline::never();
    hurry(context_.links_with_writes());
    progress();
  }
  give_up_waiting();
  step_rates([](RateChanges& changes) { changes.on_time(now_ns()); });
  if (adopting_ && deadline_.expired()) {
    note_departures();
    for (uint32_t local = 0; local < local_here_.size(); ++local) {
      if (!local_here_[local]) local_rank_failed(local, "did not come back to the daemon after its restart");
    }
  }
  if (!ready_ && on_ready_) look_at_making();
}

std::optional<Deadline> EngineGroup::next_time() const {
  const bool waits = adopting_ || (!ready_ && on_ready_);
  Deadline next = Deadline::earlier(hurry_at_, look_at_);
  if (rate_changes_ && may_change_rates())
    next = Deadline::earlier(next, Deadline::at_ns(rate_changes_->next_time()));
  if (waits) next = Deadline::earlier(next, deadline_);
  if (!ready_ && on_ready_) next = Deadline::earlier(next, ping_at_);
  for (const GroupPeer& peer : context_.peers) {
    if (peer.suspended) next = Deadline::earlier(next, peer.suspended_until);
  }
  if (next.is_never()) return {};
  return next;
}

bool EngineGroup::quiet() {
  if (context_.failed()) return true;
  if (!is_made()) return false;
  if (rings_.awaits_arrivals()) hurry(context_.links_with_writes());
  if (!chunks_.idle() || context_.writes_in_flight() != 0 || !rings_.drained()) return false;
  for (uint32_t local = 0; local < local_departed_.size(); ++local) {
    if (local_departed_[local]) continue;
    ipc::RankState& rank_state = context_.segment.rank_state(local);
    const uint64_t over =
        solo() ? rank_state.finished.load(std::memory_order_acquire) : chunks_.calls_entered();
    if (rank_state.entered.load(std::memory_order_acquire) != over) return false;
  }
  return true;
}

}  // namespace hdt::daemon
