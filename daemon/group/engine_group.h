// engine_group.h: one group in an engine. It connects the parts of a group: ChunkRunner for collectives,
// RingForwarder for point-to-point, and GroupContext for what both need. It hears from the engine
// what happens on links and in sessions, and decides whether the group is making, running, failed or
// ended (docs/glossary.md).
//
// The life of a group of several nodes:
//
// 1. Making. The engine connects it to every other node (on_link_up()). Nodes exchange GroupHello, what
//    they have measured, and GroupReady. With that of all, on_ready is called with OK, and ranks take
//    their seats.
// 2. Running. progress() moves chunks and cells whenever something has come or a rank has rung.
// 3. Failed, at any time: the failure is recorded once in the segment, which wakes the local ranks, and
//    sent to every other node once.
// 4. Ended: when all local ranks have departed, every other node has been sent NodeDeparted, and every other
//    node has sent it or is unreachable, finished() is true and the engine destroys the group.
//
// A group of one node is ready at once; the engine only watches its ranks.
//
// Owner: GroupTable. Thread: that engine's only. Data from other nodes and
// from ranks is foreign and is checked here before the parts get it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "daemon/group/chunk_runner.h"
#include "daemon/group/group_context.h"
#include "daemon/group/link_part.h"
#include "daemon/group/rate_changes.h"
#include "daemon/group/ring_forwarder.h"
#include "daemon/protocol/facts.h"
#include "ipc/messages.h"

namespace hdt::daemon {

// The data that an engine needs to make a group. Filled in by GroupMaker::prepare() for a new group, or by
// Adoption::describe() for one that a predecessor made, on the control thread; completed by
// Engine::make_group().
struct GroupSpec {
  // random, the same on all nodes; not 0
  uint64_t id = 0;
  // the key by which the ranks met; kept in the segment for a successor of this daemon
  ipc::GroupKey meeting_key{};
  std::string group_class;
  // the algorithm that is configured for the class, the same on all nodes; nothing: "auto"
  std::optional<collectives::Algorithm> algorithm;
  // by rank: the number of its node
  std::vector<uint32_t> node_of_rank;
  // all nodes of the group, in an order that is the same on all of them
  std::vector<NodeInfo> nodes;
  // this node's number in `nodes`
  uint32_t me = 0;
  // the segment of this node, zeroed unless `adopted`
  std::shared_ptr<SharedMemory> memory;
  // the memory is that of a group that a predecessor of this daemon made
  bool adopted = false;
  // if adopted: the measurements that the nodes had exchanged; empty: there were none
  std::vector<ipc::NodeRates> rates;
  // if adopted: by node, the NICs that carried the link to it then; empty as `rates`
  std::vector<ipc::NicsOfLink> nics;
  // how long, in ms, other nodes are to wait for a successor of this daemon; 0: there will be none
  int64_t restart_ms = 0;
  // all ranks of the node are in the process that hosts this daemon, so no successor could have them
  bool ends_with_host = false;
  // measured by this node; only in groups of several nodes
  ipc::MemoryRates memory_rates;
  // until when the group must be ready; if adopted: until when its ranks must have come back
  Deadline deadline = Deadline::never();
  // called once, on the engine's thread: OK when the group is ready, or the reason why it was not made
  std::function<void(Status)> on_ready;
};

// See the head of this file.
class EngineGroup : private RateChanges::Group {
 public:
  // Writes the segment, or goes on from the one of a predecessor. May call spec.on_ready. `group_index`
  // is the group's index in the engine's table.
  EngineGroup(GroupSpec spec, uint32_t group_index, std::unique_ptr<GroupServices> services);

  uint64_t id() const { return context_.id; }
  const GroupContext& context() const { return context_; }
  ipc::Segment& segment() { return context_.segment; }
  const ChunkRunner& chunks() const { return chunks_; }
  Tuner& tuner() { return chunks_.tuner(); }
  // all nodes have what they need; chunks and rings may move
  bool ready() const { return ready_; }
  // The group waits for this from that node until it is ready, for people; "": nothing.
  std::string lacks_of(uint32_t node) const;
  // The group was taken over from a predecessor of this daemon, and some of its ranks have not come back
  // yet.
  bool adopting() const { return adopting_; }
  // The group has a link in use to the node.
  bool connected(uint32_t node) const { return context_.peers[node].link != nullptr; }
  // This link is in use for the node, offered, or old (GroupPeer::uses()).
  bool uses(uint32_t node, const transport::Link& link) const { return context_.peers[node].uses(link); }
  // All ranks are on this node.
  bool solo() const { return context_.nodes.size() == 1; }

  // The link to `node` is up, and our segment is registered for it as `our_region` with the engine's
  // backend number `backend`. Sends our hello, and the failure if the group has failed meanwhile.
  void on_link_up(uint32_t node, transport::Link& link, const transport::RegionKey& our_region,
                  uint32_t backend);
  // The node whose link is to be measured next; nothing: none is left.
  std::optional<uint32_t> next_to_measure() const;
  // The link to the node is to be measured before the group can be ready.
  bool is_to_measure(uint32_t node) const { return compares_rates() && !link_told_[node]; }
  // The link to the node has these rates. not measured(): there was no way to find out. Counted once for
  // each node.
  void on_link_measured(uint32_t node, const ipc::LinkRates& rates);
  // The link in use for the node has got or lost a rail, or may have more or less of a NIC.
  void on_rails(uint32_t node);
  // The link to the node has ended. `daemon_ended`: the node's daemon does not listen any more, so a
  // successor may come: then the node is suspended if its hello allowed that. Otherwise the node, and with
  // it the group, has failed, unless the node has departed.
  void on_link_down(uint32_t node, const transport::Link& link, const Status& reason, bool daemon_ended);
  // The node is suspended: its daemon has ended, or this one was started again.
  bool is_suspended(uint32_t node) const { return context_.peers[node].suspended; }
  bool anyone_suspended() const;
  // A successor of the node's daemon has come; it is met at `info` from now on.
  void set_node(uint32_t node, const NodeInfo& info);
  // Moves the group to another link of its class while calls are under way (GroupPeer). The end that
  // dialled offers the new link by a hello on it. The other end follows when it has that hello, and
  // answers with its own; at that answer the first end moves as well. Both functions do nothing in a
  // group that has failed.
  void offer(uint32_t node, transport::Link& link, const transport::RegionKey& our_region, uint32_t backend);
  void follow(uint32_t node, transport::Link& link, const transport::RegionKey& our_region, uint32_t backend,
              const transport::RegionKey& their_region);
  // No link to that node is left, so it may not write to the memory of local processes any more.
  void revoke_direct(const NodeId& node) { context_.direct.revoke(node); }
  // Drops old links on which nothing is under way any more and nothing will come.
  void drop_old_links();
  // A frame of the node has landed, with `bytes` of payload. A frame that makes no sense fails the
  // group.
  void on_frame(uint32_t node, const Frame& frame, uint64_t bytes);
  // A message of the node has come on `link`. A message in the name of another node, or one that the
  // node's state does not allow, is ignored.
  void on_message(uint32_t node, const EngineMessage& note, const transport::Link& link);
  // The memory of a write on `link` may change again.
  void on_sent(uint32_t node, const transport::Link& link, const WriteToken& token);
  // Sends a message to one node, or to all others. For class changes, whose messages the engine makes.
  void tell(uint32_t node, const EngineMessage& note) { context_.send(node, note); }
  void tell_all(const EngineMessage& note) { context_.send_all(note); }
  // Does everything that can be done now. The engine calls it after a rank has rung or something has
  // come. True if anything was done.
  bool progress();
  // The group is finished, and the engine could not let go of it: has the engine try again in a
  // millisecond.
  void end_later() { look_soon(); }
  // next_time() has come. Repeats what could not be sent for want of memory, asks for acknowledgements
  // that somebody waits for, gives up nodes and ranks that did not come back, and watches the deadline
  // of the making.
  void on_time();
  // When on_time() is to be called; nothing: not at all.
  std::optional<Deadline> next_time() const;

  // A process does not share this memory any more. A group that has failed keeps it to its end
  // (direct_memory.h).
  void forget_memory(uint64_t number) {
    if (!context_.failed()) chunks_.forget_memory(number);
  }

  // A process of that user has taken the seat of local rank `local`.
  void local_rank_here(uint32_t local, uint32_t user);
  // The users whose processes have or had seats here.
  const std::vector<uint32_t>& users() const { return users_; }
  // The rank has departed. Informs the other nodes and the local ranks, once.
  void local_rank_departed(uint32_t local);
  // Finds ranks whose states (`RankState`) say that they have departed although the session's message has
  // not come yet.
  void note_departures();
  // The rank's process has ended, or cannot go on; `how` continues the sentence "rank 3 of ... ". Fails
  // the group with kRankLost, and then counts the rank as departed, even if an allocation fails. So a caller
  // must allocate nothing for `how`, or have done so before. No effect on a rank that has departed.
  void local_rank_failed(uint32_t local, std::string_view how);
  // Fails the group here and on all nodes; see GroupContext::fail. No effect if it has failed.
  void fail(Code code, int32_t rank, const std::string& text);
  // An exception has left something that was done for the group, so the group fails. Needs no memory for
  // that.
  void give_up(const std::string& why);
  // A copy of what is known of the group, for diagnosis. `pid` returns the process of a local rank; 0:
  // it has no session any more, or no number here.
  GroupFacts facts(const std::function<uint32_t(uint32_t local)>& pid) const;
  // Some rank of this node has not departed.
  bool has_local_ranks() const;
  // Sends NodeDeparted to the other nodes, once, when all local ranks have departed and nothing more will
  // come from here. Until then asks for the acknowledgements that are missing.
  void send_departure();
  bool departure_sent() const { return departure_sent_; }
  // A rank of the process that hosts this daemon has departed.
  bool host_has_departed() const;
  // Ranks of this node may still need something from that node.
  bool needs(uint32_t node) const { return has_local_ranks() && context_.peers[node].takes_part(); }
  // Everyone has departed and no write is under way: the group may be destroyed.
  bool finished() const;
  // Why the group is still here although all ranks of this node have departed; "" if they have not, or if it
  // is finished.
  std::string stays_for() const;
  // Nothing is left to be done here for the making of the group (engine_group_seats.cc). Asks the other
  // nodes for the acknowledgements that are missing.
  bool is_made();
  // No rank of this node is in a call, and everything that the ranks have sent has arrived. Asks for the
  // acknowledgements that are missing. True for a group that has failed.
  bool quiet();

 private:
  // engine_group_making.cc; the last two are in engine_group.cc
  //
  // Makes the group ready if nothing is missing. Called at every step of the making.
  void check_ready();
  // Writes the rates of the nodes' links to the shared memory, for hdtSuggestCounts.
  void publish_rates();
  // Pings links, and watches the deadline, while the group is being made.
  void look_at_making();
  // Ends `adopting_` when every local rank has come back or has departed.
  void check_adopted();
  // Takes `link` in use for the node, and keeps the one that was in use as an old link.
  void move(uint32_t node, transport::Link& link, uint32_t backend, const transport::RegionKey& their_region);
  // engine_group_seats.cc
  //
  // Answers ranks that measure the round trip to their daemon.
  void give_echoes();
  // Sends GroupSeated when all local ranks have their seats.
  void note_seats();
  // All ranks of that node have their seats.
  void on_seated(uint32_t node);
  // Sends the node GroupSeated, if this node's ranks are seated.
  void tell_seated(uint32_t node);
  // The nodes exchange their measurements, and each waits for those of all.
  bool compares_rates() const { return !solo() && context_.nodes.size() <= ipc::kMostMeasuredNodes; }
  // Keeps the measurements of a node; the first ones count. With those of all the group may become
  // ready.
  void keep_rates(uint32_t node, const ipc::NodeRates& rates);
  // engine_group_rates.cc
  //
  // Takes up what all nodes have measured, and the changes since then that the journal has.
  void set_rates(std::vector<ipc::NodeRates> table, std::vector<ipc::NicsOfLink> nics);
  // By node: the NICs that carry the link to it.
  std::vector<ipc::NicsOfLink> count_link_nics() const;
  // The group has moved to another link to the node.
  void on_other_nics(uint32_t node);
  // Keeps how many NICs the link to the node was measured with.
  void set_measured_nics(uint32_t node, const ipc::NicsOfLink& nics);
  // Looks now and then whether other classes use the NICs of the links.
  void look_at_nics();
  // A message about changes of rates.
  void on_rate_change(const RateChangeMessage& note);
  // The group is ready and not over.
  bool may_change_rates() const { return ready_ && !context_.failed() && !departure_sent_; }
  // Lets `rate_changes_` do something, if it may.
  void step_rates(const std::function<void(RateChanges& changes)>& step);
  std::optional<collectives::CostMeasurements> measurements_with(const RateChanges::Parts& parts) const;
  // RateChanges::Group
  void send(uint32_t node, const RateChangeMessage& note) override { context_.send(node, note); }
  uint64_t first_unread() const override { return chunks_.first_unread(); }
  uint64_t first_unfinished() const override { return chunks_.first_unfinished(); }
  void change_rates(uint64_t call, const RateChanges::Parts& parts) override;
  bool is_worth(const RateChanges::Parts& parts) const override;
  bool all_open() const override;
  // Fails the group on this node alone: the others know, or the coordinator informs them.
  void fail_here(Code code, int32_t rank, const std::string& text);
  // "node n1 (rank 2, 3 of group ...)"
  std::string about(uint32_t node) const;
  // Has on_time() ask for acknowledgements and look at the group again, in a millisecond.
  void look_soon();
  // The node has sent more of something than there can be: fails the group.
  void flooded(uint32_t node);
  // The node has answered that it has no such group.
  void on_unknown(uint32_t node);
  // Calls on_ready with `why`, if it has not been called yet.
  void tell_not_made(const Status& why);
  // Sends the failure to all other nodes, if that was not done yet.
  void tell_failure();
  // Sends a node what has ended before it had a link: the group by a failure, and this node's part.
  void tell_end(uint32_t node);
  // The node has a part in the group, and has not sent NodeDeparted.
  bool awaits_departure(uint32_t node) const;
  // Asks the peers to acknowledge at once what was sent on these links.
  void hurry(const std::vector<transport::Link*>& links);
  // engine_group_restart.cc
  //
  // Takes up the group of a predecessor.
  void go_on(const GroupSpec& spec);
  // Suspends the node for `restart_ms`, or until it is back.
  void wait_for(uint32_t node, const Status& why, int64_t restart_ms);
  // Fails the group over nodes that were suspended for too long.
  void give_up_waiting();
  // Sends the node what has come of its payloads and cells, and Resume.
  void tell_state(uint32_t node);
  // The node has sent the same. Both know now, so work with it goes on.
  void on_resume(uint32_t node, const Resume& note);
  // Sends the node that this local rank has departed, and what the rank has written to the node's ranks.
  void tell_departure(uint32_t local, uint32_t node);
  // Repeats to the node which ranks here have departed.
  void tell_departures(uint32_t node);

  // before what uses them
  std::unique_ptr<GroupServices> services_;
  // keeps the segment mapped
  std::shared_ptr<SharedMemory> memory_;
  GroupContext context_;
  ChunkRunner chunks_;
  RingForwarder rings_;
  // of the making, or of the return of all ranks
  Deadline deadline_;
  // empty after it was called
  std::function<void(Status)> on_ready_;
  int64_t restart_ms_;
  // all other nodes have been sent the failure
  bool told_failure_ = false;
  // how often give_up() was called, which lengthens the pauses between attempts
  int times_given_up_ = 0;
  // what this node has measured itself, sent to the others when it is complete
  ipc::NodeRates own_rates_;
  // by node: `own_rates_` has the link to that node, or there was no way to measure it
  std::vector<bool> link_told_;
  // by node: what it has measured; moved to `agreed_rates_` when the group becomes ready
  std::vector<std::optional<ipc::NodeRates>> rates_;
  // by node: what all have measured; empty: not known, or not ready
  std::vector<ipc::NodeRates> agreed_rates_;
  // by node: the NICs that carried the link to it then
  std::vector<ipc::NicsOfLink> agreed_nics_;
  // by node: those of the link in use, as of the latest on_rails()
  std::vector<LinkNics> seen_nics_;
  Deadline look_at_nics_ = Deadline::after_ms(0);
  // nothing in groups that do not compare rates
  std::optional<RateChanges> rate_changes_;
  // came before the group was ready
  std::optional<RateChangeMessage> early_proposal_;
  // by node: all its ranks have mapped the group's memory
  std::vector<bool> seated_;
  // this node has sent GroupSeated
  bool told_seated_ = false;
  // this node has sent GroupReady
  bool told_ready_ = false;
  // while the group is being made: when to ask again whether the peers are there
  Deadline ping_at_ = Deadline::after_ms(1'000);
  bool ready_ = false;
  // this node has sent NodeDeparted
  bool departure_sent_ = false;
  // when send_departure() asks again what has arrived
  Deadline hurry_at_ = Deadline::never();
  // when to ask for arrivals that somebody here waits for
  Deadline look_at_ = Deadline::never();
  // by local rank: it has departed or failed
  std::vector<bool> local_departed_;
  // by local rank: how it failed, for diagnosis; "" otherwise
  std::vector<std::string> local_end_;
  // by local rank: it has come back to this daemon; all true in a group that is not adopted
  std::vector<bool> local_here_;
  std::vector<uint32_t> users_;
  // adopted, and not all local ranks are here
  bool adopting_;
};

}  // namespace hdt::daemon
