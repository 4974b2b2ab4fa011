// engine_group.h: one group in an engine: it waits until every other node is ready, then runs pieces and
// channels, and ends when all ranks of all nodes have left. Failure is spread once: to the local ranks
// through the segment, to the other nodes by a note.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/shared_memory.h"
#include "daemon/group/channel_forwarder.h"
#include "daemon/group/group_context.h"
#include "daemon/group/piece_runner.h"
#include "daemon/protocol/facts.h"
#include "ipc/messages.h"

namespace hdt::daemon {

struct GroupSpec {
  uint64_t id = 0;
  session::GroupKey
      meeting_key{};  // by which the ranks met; kept in the segment for a successor of this daemon
  std::string group_class;
  std::optional<collectives::Algorithm> algorithm;  // configured, the same on all nodes; none: "auto"
  std::vector<uint32_t> node_of_rank;
  std::vector<NodeInfo> nodes;
  uint32_t me = 0;
  std::shared_ptr<SharedMemory> memory;  // for this node
  bool adopted = false;  // the memory is that of a group that a predecessor of this daemon made
  std::vector<session::NodeRates> rates;  // adopted: what the nodes had told each other
  int64_t restart_ms = 0;                 // so long a successor of this daemon is worth waiting for
  bool ends_with_host =
      false;  // all ranks of the node are of the process that the daemon is in: no successor
  session::MemoryRates memory_rates;  // of this node; groups of several nodes
  Deadline deadline =
      Deadline::never();  // of becoming ready; adopted: until when the ranks must have come back
  std::function<void(Status)> on_ready;  // called once, on the engine's thread
  DirectMemory::Services direct;         // from the engine
  std::function<void()> look_again;
  std::function<void(uint32_t node)> on_back;  // the group works with that node again
};

class EngineGroup {
 public:
  EngineGroup(GroupSpec spec, uint32_t group_slot);

  uint64_t id() const { return context_.id; }
  const GroupContext& context() const { return context_; }
  session::Segment& segment() { return context_.segment; }
  const PieceRunner& pieces() const { return pieces_; }
  Tuner& tuner() { return pieces_.tuner(); }
  bool ready() const { return ready_; }
  // What it waits for of that node until it is ready; "": nothing.
  std::string lacks_of(uint32_t node) const;
  // Taken over from a predecessor of this daemon, and some ranks have not come back yet.
  bool adopting() const { return adopting_; }
  // It has a link to the node; this one.
  bool connected(uint32_t node) const { return context_.peers[node].link != nullptr; }
  bool uses(uint32_t node, const transport::Link& link) const { return context_.peers[node].uses(link); }
  bool solo() const { return context_.nodes.size() == 1; }

  // The link to `node` is up and our memory is registered for it: says hello.
  void on_link_up(uint32_t node, transport::Link& link, const transport::RegionKey& our_region,
                  uint32_t backend);
  // To which node the link is to be measured next.
  std::optional<uint32_t> next_to_measure() const;
  bool is_to_measure(uint32_t node) const { return compares_rates() && !link_told_[node]; }
  // Not measured(): there was no way to. Told once of every node.
  void on_link_measured(uint32_t node, const session::LinkRates& rates);
  // `gone`: its daemon does not listen any more; a successor may come.
  void on_link_down(uint32_t node, const transport::Link& link, const Status& reason, bool gone);
  // The node is waited for: its daemon was lost, or this one was.
  bool is_away(uint32_t node) const { return context_.peers[node].away; }
  bool anyone_away() const;
  // A successor of its daemon has come.
  void set_node(uint32_t node, const NodeInfo& info);
  // Moving to another link while calls are under way (GroupPeer). One end offers, the other one follows when
  // it hears that.
  void offer(uint32_t node, transport::Link& link, const transport::RegionKey& our_region, uint32_t backend);
  void follow(uint32_t node, transport::Link& link, const transport::RegionKey& our_region, uint32_t backend,
              const transport::RegionKey& their_region);
  // No link to that node is left: it writes to memory of local processes no more.
  void revoke_direct(const NodeId& node) { context_.direct.revoke(node); }
  // Lets go of links that nothing needs any more.
  void drop_old_links();
  void on_frame(uint32_t node, const Frame& frame, uint64_t bytes);
  // `link`: on which it came.
  void on_note(uint32_t node, const Note& note, const transport::Link& link);
  void on_sent(uint32_t node, const transport::Link& link, const WriteToken& token);
  void tell(uint32_t node, const Note& note) { context_.send(node, note); }
  void tell_all(const Note& note) { context_.send_all(note); }
  bool progress();
  void count_look() { ++context_.looks; }
  // It is finished and could not be let go of: soon.
  void look_again() { look_soon(); }
  // Time has passed: readiness.
  void on_time();
  std::optional<Deadline> next_time() const;

  // A process shares this memory no more.
  void forget_memory(uint64_t number) {
    if (!context_.failed()) pieces_.forget_memory(number);
  }

  // A process of that user has the seat of that rank.
  void local_rank_here(uint32_t local, uint32_t user);
  // Whose processes are its ranks here, or were.
  const std::vector<uint32_t>& users() const { return users_; }
  void local_rank_left(uint32_t local);
  // Ranks whose boards say that they have left, though their message has not come yet.
  void note_departures();
  void local_rank_lost(uint32_t local, const std::string& how);
  void fail(Code code, int32_t rank, const std::string& text);
  // Something that was done for the group threw: it has failed. Does not throw for want of memory.
  void give_up(const std::string& why);
  // For diagnosis. `pid` of a local rank, 0: it has no session any more.
  GroupFacts facts(const std::function<uint32_t(uint32_t local)>& pid) const;
  // Some rank of this node has not left.
  bool has_local_ranks() const;
  // Tells the other nodes, once that is so, that nothing more will come from here.
  void say_left();
  bool told_left() const { return told_left_; }
  // A rank of the process that the daemon is embedded in has left.
  bool host_has_left() const;
  // Ranks of this node may still need something of that one.
  bool needs(uint32_t node) const { return has_local_ranks() && !context_.peers[node].left; }
  // Everyone has left and no write is under way: may be destroyed.
  bool finished() const;
  // Nothing of its making is left to be done here (engine_group_seats.cc). Asks the other nodes for what is
  // missing.
  bool is_made();
  // No rank of this node is in a call, and everything that they have sent has arrived.
  bool quiet();

 private:
  // engine_group_making.cc
  void check_ready();
  void look_at_making();
  void check_adopted();
  void move(uint32_t node, transport::Link& link, uint32_t backend, const transport::RegionKey& their_region);
  // engine_group_seats.cc
  void give_echoes();
  void note_seats();
  void on_seated(uint32_t node);
  void tell_seated(uint32_t node);
  // Nodes tell each other their rates, and every one waits for those of all.
  bool compares_rates() const { return !solo() && context_.nodes.size() <= session::kMostMeasuredNodes; }
  void keep_rates(uint32_t node, const session::NodeRates& rates);
  void fail_here(Code code, int32_t rank, const std::string& text);
  std::string about(uint32_t node) const;  // "node n1 (rank 2, 3 of group ...)"
  void look_soon();
  void flooded(uint32_t node);
  void on_unknown(uint32_t node);
  void tell_not_made(const Status& why);
  void tell_failure();
  void hurry(const std::vector<transport::Link*>& links);
  // engine_group_restart.cc
  void go_on(const GroupSpec& spec);
  void wait_for(uint32_t node, const Status& why, int64_t restart_ms);
  void give_up_waiting();
  void tell_state(uint32_t node);
  void on_resume(uint32_t node, const Resume& note);
  void tell_departures(uint32_t node);

  std::shared_ptr<SharedMemory> memory_;
  GroupContext context_;
  PieceRunner pieces_;
  ChannelForwarder channels_;
  Deadline deadline_;
  std::function<void(Status)> on_ready_;
  std::function<void(uint32_t)> on_back_;
  int64_t restart_ms_;
  bool told_failure_ = false;  // to the other nodes
  int times_given_up_ = 0;
  session::NodeRates own_rates_;
  std::vector<bool> link_told_;                           // by node: own_rates_ has its link
  std::vector<std::optional<session::NodeRates>> rates_;  // by node
  std::vector<bool> seated_;                              // by node: all its ranks have mapped its memory
  bool told_seated_ = false;                              // this node's, to the others
  bool told_ready_ = false;                               // that this node has all it needs
  Deadline ping_at_ =
      Deadline::after_ms(1'000);  // while it is being made: when to ask whether peers are there
  bool ready_ = false;
  bool told_left_ = false;
  Deadline hurry_at_ = Deadline::never();  // when to ask again what has arrived of a group that has failed
  Deadline look_at_ = Deadline::never();   // for arrivals that somebody waits for
  std::vector<bool> local_left_;
  std::vector<std::string> local_end_;  // how a rank was lost
  std::vector<bool> local_here_;        // adopted groups
  std::vector<uint32_t> users_;
  bool adopting_;  // not all local ranks are here
};

}  // namespace hdt::daemon
