// nic_share.h: how classes of groups share one NIC (docs/design/classes.md). Each class has links of its own,
// and so connections. Their data under way on the NIC is kept small, so that the class whose turn
// it is gets the NIC soon. A latency class always sends at once. Among the bulk classes the one with the
// minimum of bytes sent per weight goes next, fragment by fragment: start-time fair queueing (Goyal, Vin,
// Cheng, SIGCOMM 1996). Only classes with something to send count, so the NIC never idles for a class that
// has nothing.
//
// There is one NicShare for each NIC of an engine. Times are monotonic, in ns, and are given by the caller.
//
// How the engine serves the NICs, once a round (LinkTable::give_turns()), as long as anyone_waits():
//   1. forget_wishes() on every NIC;
//   2. Link::wants_turn() on every link, which marks the classes that have a fragment and a rail with room;
//   3. Link::take_turn() on every link, which hands over at most one fragment where admits() lets it;
//   4. again from 1 if a fragment was handed over.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "transports/link/part_watch.h"
#include "transports/link/rate_meter.h"

namespace hdt::transport {

struct SharePolicy {
  bool latency = false;  // sends at once, before all bulk classes
  uint32_t weight = 1;   // the share among bulk classes, relative to theirs; at least 1
  bool operator==(const SharePolicy&) const = default;
};

// Owned by the engine and used on its thread. It outlives its lanes, and does not move.
class NicShare {
 private:
  // A class on this NIC. It stays when its last lane goes.
  struct Flow {
    explicit Flow(const std::string& group_class) : watch(patience_of(group_class)) {}
    // From 1 to 2, and hardly the same for two classes; the same on all nodes, so that a group's nodes are
    // about equally patient.
    static double patience_of(const std::string& group_class);
    SharePolicy policy;
    double virtual_bytes = 0;  // bulk: the end of its latest fragment in virtual time (bytes by weight)
    bool waiting = false;      // it has a fragment and a rail with room, and waits for its turn
    int64_t used_ns = INT64_MIN / 2;  // when it sent, received or asked for the NIC last
    uint32_t lanes = 0;               // its rails on this NIC
    // bytes each way since the latest look at the NIC's use; its use then, as a fraction of the time
    uint64_t sent = 0, received = 0;
    double use = 0;
    // the part of the NIC that the others leave it
    PartWatch watch;
  };

 public:
  // A rail's part in the NIC. The Rail owns it; the NicShare outlives it.
  class Lane {
   public:
    // `group_class` names the class; set_policy() gives its policy, and the default is bulk of weight 1.
    Lane(NicShare& nic, const std::string& group_class, int64_t now);
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    // True if the rail may be handed a fragment now. If not, its class is marked as waiting.
    bool admits(int64_t now);
    // Its class has a fragment to send, and this rail has room for it.
    void wants() { flow_.waiting = true; }
    // A fragment of `bytes` was handed to the rail.
    void handed_over(uint64_t bytes, int64_t now);
    // `bytes` were acknowledged; the oldest of them was handed over at `since`. `rest_ns`: the rail's, see
    // delay_meter.h. settled() follows for each fragment.
    void acknowledged(uint64_t bytes, int64_t since, int64_t rest_ns, int64_t now);
    // A fragment is not under way any more: it was acknowledged, or its rail was lost.
    void settled(uint64_t bytes) { in_flight_ -= bytes; }
    // A fragment of `bytes` has come on the rail.
    void heard(uint64_t bytes, int64_t now) {
      flow_.used_ns = now;
      flow_.received += bytes;
    }
    // True if another class used the NIC within the last 200 ms, or is a latency class with a rail on it,
    // which may want the NIC at any moment.
    bool shared(int64_t now) const;
    // `host`: the peer's address without a port. Rails to the same host share queues on the way.
    void leads_to(const std::string& host) { peer_ = host; }
    // The rail's connection was seen to have made progress.
    void progressed(int64_t now) { progressed_ns_ = now; }
    // True if another rail between this NIC and the same peer host made progress at or after `since`. What
    // this rail has under way may be queued behind that rail's, here or at the peer.
    bool others_move(int64_t since) const;
    // The NIC's latest figure over all classes; 0: not known.
    double nic_ns_per_byte() const { return nic_.meter_.ns_per_byte(); }
    // The part of the NIC on which its class can count for some time (part_watch.h), more than 0 and at most
    // 1: its share by weight, or what the others leave if that is more. A latency class goes first and counts
    // on all. To be asked several times a second: whoever asks makes the looks at the NIC.
    double part(int64_t now);
    // As of NicShare::describe().
    const std::string& nic_name() const { return nic_.name_; }
    uint64_t nic_bits_per_second() const { return nic_.bits_per_second_; }

   private:
    friend class NicShare;
    NicShare& nic_;
    Flow& flow_;  // entries of a std::map do not move
    std::string peer_;
    uint64_t in_flight_ = 0;  // bytes handed over and not settled
    int64_t rest_ns_ = 0;     // as of the latest acknowledgement
    int64_t moved_ns_;  // when an acknowledgement came, or when a rail with nothing under way got something
    int64_t progressed_ns_ = INT64_MIN / 2;
  };

  // What the NIC is called, the same for all rails over it, and its nominal speed; 0: not known.
  void describe(const std::string& name, uint64_t bits_per_second) {
    name_ = name;
    bits_per_second_ = bits_per_second;
  }
  // Takes effect at once, also for lanes that exist.
  void set_policy(const std::string& group_class, const SharePolicy& policy) {
    flow(group_class).policy = policy;
  }
  // Clears the marks of waiting classes, before links are asked again.
  void forget_wishes();
  bool anyone_waits() const;

 private:
  // The flow of that class, made if there is none.
  Flow& flow(const std::string& group_class) {
    return flows_.try_emplace(group_class, group_class).first->second;
  }
  // Bytes under way on the NIC, without those of rails on which nothing moves.
  uint64_t in_flight(int64_t now) const;
  // By how much the window of bulk is divided: 1, or more where there are latency classes.
  uint64_t held_back(int64_t now) const;
  // Where the flow's next fragment would begin, in virtual bytes.
  double start_of(const Flow& flow) const;
  // Looks how much of the NIC each class has used since the latest look, unless that was just now.
  void look_at_use(int64_t now);
  // What the flow could have had of the NIC beside the others' use.
  double left_for(const Flow& flow) const;

  std::map<std::string, Flow> flows_;  // by class
  std::vector<Lane*> lanes_;           // of all classes
  RateMeter meter_;                    // of the NIC, over all classes
  int64_t round_ns_ = 0;   // from handing a fragment over to its acknowledgement, as of the latest one
  double now_served_ = 0;  // virtual time: the maximum start of all bulk fragments handed over so far
  std::string name_;
  uint64_t bits_per_second_ = 0;
  int64_t looked_ns_ = 0;  // at the NIC's use; 0: never
};

}  // namespace hdt::transport
