// nic_share.h: how classes of groups share one NIC. Each class has links, and so connections, of its own;
// what they have under way on the NIC together is kept small, so that whoever is to go next soon goes. A
// latency class always goes at once; among the others the one that has had least for its weight goes next,
// chunk by chunk (start-time fair queueing). Only classes with something to send count, so nothing is held
// back for a class that has nothing.
//
// One for each NIC of an engine, used by its thread. Time is given to it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "transports/link/rate_meter.h"

namespace hdt::transport {

struct SharePolicy {
  bool latency = false;  // goes before all bulk
  uint32_t weight = 1;   // among bulk
  bool operator==(const SharePolicy&) const = default;
};

class NicShare {
 private:
  struct Flow {
    SharePolicy policy;
    double virtual_bytes = 0;  // handed over, by weight
    bool waiting = false;      // a link of it has a chunk and its rail room, but it is not its turn
    int64_t used_ns = INT64_MIN / 2;
    uint32_t lanes = 0;
  };

 public:
  // A rail's part in the NIC. The NicShare outlives it.
  class Lane {
   public:
    Lane(NicShare& nic, const std::string& group_class, int64_t now);
    ~Lane();
    Lane(const Lane&) = delete;
    Lane& operator=(const Lane&) = delete;

    // Whether the rail may be handed a chunk now. If not, its class waits for its turn.
    bool admits(int64_t now);
    // It has a chunk to send and room for it.
    void wants() { flow_.waiting = true; }
    void handed_over(uint64_t bytes, int64_t now);
    // The oldest of them was handed over at `since`; `rest_ns` as in delay_meter.h.
    void acknowledged(uint64_t bytes, int64_t since, int64_t rest_ns, int64_t now);
    // Acknowledged or lost: not under way any more.
    void settled(uint64_t bytes) { in_flight_ -= bytes; }
    // Something has come on the rail.
    void heard(int64_t now) { flow_.used_ns = now; }
    // Another class uses the NIC as well, or may at any moment want it at once.
    bool shared(int64_t now) const;
    // The peer's host to which the rail leads.
    void leads_to(const std::string& host) { peer_ = host; }
    // The rail's connection was seen to have got somewhere.
    void progressed(int64_t now) { progressed_ns_ = now; }
    // So was that of another rail between the same NIC and host, at `since` or later. What this one has under
    // way may stand behind what that one has, in either queue.
    bool others_move(int64_t since) const;
    double nic_ns_per_byte() const { return nic_.meter_.ns_per_byte(); }

   private:
    friend class NicShare;
    NicShare& nic_;
    Flow& flow_;
    std::string peer_;
    uint64_t in_flight_ = 0;
    int64_t rest_ns_ = 0;
    int64_t moved_ns_;  // when an acknowledgement came, or the first of what is under way was handed over
    int64_t progressed_ns_ = INT64_MIN / 2;
  };

  void set_policy(const std::string& group_class, const SharePolicy& policy) {
    flows_[group_class].policy = policy;
  }
  // Before links are asked who wants to send.
  void forget_wishes();
  bool anyone_waits() const;

 private:
  uint64_t in_flight(int64_t now) const;
  uint64_t held_back(int64_t now) const;
  double start_of(const Flow& flow) const;

  std::map<std::string, Flow> flows_;
  std::vector<Lane*> lanes_;
  RateMeter meter_;
  int64_t round_ns_ = 0;   // from handing a chunk over to its acknowledgement, lately
  double now_served_ = 0;  // the start, in virtual bytes, of the chunk that was handed over last
};

}  // namespace hdt::transport
