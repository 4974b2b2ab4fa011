// engine_messages.cc: what links report, handed to the groups and parts that it concerns (LinkUser).
//
// Frames and messages of links are passed to the group that they name. One that names no group here is early,
// late or foreign, and is handled without harm to the other groups of the link.
#include <algorithm>

#include "base/contained.h"
#include "base/log.h"
#include "daemon/engine/engine.h"
#include "daemon/protocol/wire.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kSayStrayMs = 1'000;  // between two lines in the log

}  // namespace

// The probe is made before groups take the link, because taking it sends messages that may begin the
// measurement.
void Engine::on_up(PeerLink& peer) {
  measuring_.make_probe(peer);
  mover_.link_up(peer);
  chooser_.link_up(peer);
  measuring_.end_if_done(peer);  // there may be nothing to measure, or no way to
}

// The link has left the table already. It lives to the end of the round, as its own call is on the stack;
// every group that used it is informed before this returns.
void Engine::on_down(PeerLink& peer, const Status& why, bool daemon_ended, bool last) {
  const LinkId id = peer.id;
  // 1. With the last link to the node, the node may not write to the probe memory any more.
  if (last) measuring_.forget_node(id.node);
  // 2. The groups. From here on nothing may be left out: an exception is the matter of one group each.
  for (const auto& group : groups_.all()) {
    if (group == nullptr) continue;
    const auto node = node_of(*group, id.node);
    if (!node) continue;
    // A group that waits for the peer to dial has no link yet. It learns from the end of the last link to
    // that node that the node cannot be reached.
    const bool dialled = dials(options_.node, options_.node_name, id.node, peer.name);
    const bool waits = last && !group->connected(*node) && !dialled;
    if (!waits && !group->uses(*node, peer.link)) continue;
    GroupTable::contain(*group, [&] {
      group->on_link_down(*node, peer.link, why, daemon_ended);
      // Without a link the node may write to nothing of the group any more.
      if (!group->connected(*node)) keys_.withdraw(*group, id.node);
      if (group->is_suspended(*node)) mover_.stop(*group, *node);
    });
    groups_.touch(*group);
  }
  // 3. Whoever waits for this link to come up: class changes, and groups that are being connected.
  (void)contained("a move to a link", [&] { mover_.link_failed(id, why); });
  chooser_.link_failed(id, why);
  // 4. Successors that wait until the last link to their predecessors is down.
  successors_.on_link_down();
}

// Groups on the link have more or less of it from now on.
void Engine::on_rails(PeerLink& peer) {
  for (const auto& group : groups_.all()) {
    if (group == nullptr) continue;
    const auto node = node_of(*group, peer.id.node);
    if (!node || group->context().peers[*node].link != &peer.link) continue;
    GroupTable::contain(*group, [&] { group->on_rails(*node); });
  }
}

// Also called for a link that could not be measured: its rates are zero then, and the groups go on without
// them.
void Engine::on_link_rates(PeerLink& peer, const ipc::LinkRates& rates) {
  for (const auto& group : groups_.all()) {
    if (group == nullptr) continue;
    const auto node = node_of(*group, peer.id.node);
    if (!node || !group->uses(*node, peer.link)) continue;
    GroupTable::contain(*group, [&] {
      group->on_link_measured(*node, rates);
      // The next link of the group may begin, now that this one is done.
      chooser_.measure_next(*group);
    });
    groups_.touch(*group);
  }
}

// If the peer begins (kHere) and no group of this node waits for its turn with this link, this end begins as
// well: any time is as good.
void Engine::on_probe_message(PeerLink& peer, const ProbeMessage& message) {
  if (!peer.probe) return;
  peer.probe->on_message(message);
  const auto& all = groups_.all();
  const bool waits = std::any_of(all.begin(), all.end(), [&](const auto& group) {
    const auto node = group != nullptr ? node_of(*group, peer.id.node) : std::nullopt;
    return node && group->uses(*node, peer.link) && group->is_to_measure(*node);
  });
  if (message.kind == ProbeMessage::Kind::kHere && !waits) peer.probe->begin();
  measuring_.end_if_done(peer);
}

// The end of a link that no group needs any more is no news for an operator. At the end of a job each
// daemon sees others go, some of them before their goodbyes have come.
bool Engine::is_used(const PeerLink& peer) const {
  return std::any_of(groups_.all().begin(), groups_.all().end(), [&](const auto& group) {
    const auto node = group != nullptr ? node_of(*group, peer.id.node) : std::nullopt;
    return node && group->uses(*node, peer.link) && group->needs(*node);
  });
}

// The link needs the bytes of the write no longer: they have arrived, or were few enough to be copied. The
// token carries the group's index rather than its id, which makes this the cheapest look-up of all.
void Engine::on_sent(PeerLink& peer, uint64_t token) {
  if (token == LinkProbe::kToken) return;
  const WriteToken sent = WriteToken::unpack(token);
  // The group exists, as it is not destroyed while one of its writes is under way. The node is in it, as
  // its id changes only when its last link is down (Successors).
  EngineGroup& group = groups_.at(sent.group_index);
  GroupTable::contain(group, [&] { group.on_sent(*node_of(group, peer.id.node), peer.link, sent); });
  groups_.touch(group);
}

// A write of the peer has landed in this node's memory. The link acknowledges it only after this call, so
// whatever a successor of this daemon must know about it is in the journal before the peer forgets it.
void Engine::on_arrived(PeerLink& peer, const transport::LinkHeader& header, uint64_t bytes) {
  const Frame frame = decode_frame(header);
  if (std::holds_alternative<ProbeFrame>(frame)) {
    if (peer.probe) peer.probe->on_burst();
    return;
  }
  const uint64_t id = std::visit(
      [](const auto& f) -> uint64_t {
        if constexpr (std::is_same_v<std::decay_t<decltype(f)>, std::monostate>)
          return 0;
        else
          return f.group;
      },
      frame);
  // A peer that sends malformed frames does not speak this protocol, so its link ends.
  if (std::holds_alternative<std::monostate>(frame)) {
    peer.link.close({Code::kInvalidArgument, "node " + peer.name + " sent a malformed frame"});
    return;
  }
  // The peer chooses the id in the frame. That it is in the group is checked here, once for all frames.
  EngineGroup* group = groups_.find(id);
  const auto node = group != nullptr ? node_of(*group, peer.id.node) : std::nullopt;
  // The other groups of the link have nothing to do with it.
  if (!node) return drop_stray(peer, id);
  GroupTable::contain(*group, [&] { group->on_frame(*node, frame, bytes); });
  answer_failed(*group, *node, peer);
  groups_.touch(*group);
}

// A frame for a group that is not here (any more), or that the peer is not in. Logged once a second at
// most.
void Engine::drop_stray(PeerLink& peer, uint64_t group) {
  answer_stray(peer, group);
  // Counted without a limit, logged with one: a peer can send such frames as fast as the link carries
  // them.
  ++stray_frames_;
  if (!stray_again_.expired() && !stray_again_.is_never()) return;
  stray_again_ = Deadline::after_ms(kSayStrayMs);
  HDT_LOG_WARN("node {} writes to group {}, which it is not in here; {} such frames have been dropped {}",
               peer.name, short_id(group), stray_frames_, LogTag{.node = options_.node_name});
}

// A control message of the peer. Messages of a link come in order, but a group may be using two links, and
// frames are in no order with messages. So each message stands for itself (wire.h).
void Engine::on_message(PeerLink& peer, std::span<const std::byte> message) {
  const EngineMessage note = decode_engine_message(message);
  if (std::holds_alternative<std::monostate>(note)) {
    peer.link.close({Code::kInvalidArgument, "node " + peer.name + " sent a malformed note"});
    return;
  }
  if (const auto* probe = std::get_if<ProbeMessage>(&note)) return on_probe_message(peer, *probe);
  if (std::holds_alternative<LinkDrained>(note)) {
    peer.drained_there = true;
    return;
  }
  // 1. The group is not here. A hello, a failure or measurements may be early; everything else is late.
  EngineGroup* group = groups_.find(daemon::group_of(note));
  if (group == nullptr) {
    const bool keep = std::holds_alternative<GroupHello>(note) || std::holds_alternative<GroupFailed>(note) ||
                      std::holds_alternative<RatesMessage>(note);
    const bool known = std::holds_alternative<GroupUnknown>(note);  // the group has ended at both ends
    if (known) return;
    if (!keep || groups_.has_ended(daemon::group_of(note))) return answer_stray(peer, daemon::group_of(note));
    early_.keep(peer.id, note);
    return;
  }
  const auto node = node_of(*group, peer.id.node);
  // 2. The node is not in the group under this id: a successor, or one that this successor has not met
  //    yet.
  if (!node && group->anyone_suspended() && std::holds_alternative<GroupHello>(note))
    early_.keep(peer.id, note);
  if (node) {
    const bool they_dial = !dials(options_.node, options_.node_name, peer.id.node, peer.name);
    // 3. The peer dials, so the link on which it sends its hello is its choice. A hello on another link
    //    than the one in use moves the group there (a class change).
    if (std::holds_alternative<GroupHello>(note) && !group->connected(*node) && they_dial) {
      GroupTable::contain(*group, [&] { chooser_.take(*group, *node, peer); });
    }
    const auto* hello = std::get_if<GroupHello>(&note);
    if (hello != nullptr && group->connected(*node) && !group->uses(*node, peer.link) && they_dial) {
      GroupTable::contain(*group, [&] { mover_.follow(*group, *node, peer, hello->region); });
    }
    // 4. In any case the group gets the message.
    GroupTable::contain(*group, [&] {
      mover_.on_message(*group, *node, note);
      group->on_message(*node, note, peer.link);
      if (hello != nullptr) mover_.check(*group);
    });
    answer_failed(*group, *node, peer);
    groups_.touch(*group);
  }
}

// Something for a group that is not here, or that the peer is not in. The peer got as far as this only
// with this node's hello, so the group was here: it has failed and the peer could not be informed, or
// both have departed from it. Only a hello and what comes with it may be early. One answer for a run of
// frames is enough.
void Engine::answer_stray(PeerLink& peer, uint64_t group) {
  if (peer.told_stray == group) return;
  (void)peer.link.send(encode(GroupUnknown{group}));
  peer.told_stray = group;
}

// The peer sends something for a group that has failed here, on a link that the group does not have: the
// link on which it would have been informed is down, which the peer may not know yet.
void Engine::answer_failed(EngineGroup& group, uint32_t node, PeerLink& peer) {
  if (!group.context().failed() || group.connected(node) || peer.told_stray == group.id()) return;
  const Status failure = group.context().failure();
  (void)peer.link.send(
      encode(GroupFailed{group.id(), failure.code(), group.context().failed_rank(), failure.message()}));
  peer.told_stray = group.id();
}

}  // namespace hdt::daemon
