// network.h: transfers that share links. A node has a port out and a port in for each kind of NIC, and its
// inside; whatever uses a port at a time shares it equally.
//
// A transfer moves at the rate of its slowest hop. A hop's rate is the link's for this message size, divided
// by the number of transfers on the busier of its two ports. That is the equal share: what a transfer that is
// slowed elsewhere leaves over is not handed to the others, so rates are never too high.
#pragma once

#include <string>
#include <vector>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

struct Hop {
  int from = 0;  // nodes
  int to = 0;
  // What the transfer adds to the users of the two ports; a hop inside a node has one port, the first.
  int from_users = 1;
  int to_users = 1;
  bool crosses = false;  // `from` and `to` are the same and stand for two equal nodes (equal_replicas.h)

  bool inside() const { return from == to && !crosses; }
};

// Which of a link's rates a transfer has.
enum class TransferKind { kMessage, kAllreduce };

class Network {
 public:
  Network(const Cluster& cluster, const Profile& profile);

  // Begins to move `bytes` over each hop, all hops at once; `message_bytes` choose the rate from the profile,
  // and `efficiency` is the part of it that is reached. Returns an id.
  int start(TransferKind kind, const std::vector<Hop>& hops, double bytes, double message_bytes,
            double efficiency);

  // A transfer that takes `seconds` when nothing else uses the ports of its hops, and longer as they are
  // shared.
  int start_timed(const std::vector<Hop>& hops, double seconds);

  // Seconds until the next transfer ends if none is started before; infinite when there is none.
  double next_end() const;
  // Lets the time pass, at most next_end(). Returns the transfers that have ended.
  std::vector<int> advance(double seconds);

 private:
  struct Transfer {
    int id = 0;
    double latency = 0;  // still to wait
    double bytes = 0;    // still to move over each hop
    double rate = 0;     // now
    std::vector<int> ports;
    std::vector<int> port_users;
    std::vector<double> hop_rates;  // alone; two ports a hop
  };
  int add(Transfer transfer);
  void add_ports(const Hop& hop, Transfer& transfer) const;
  void use_ports(const Transfer& transfer, int sign);
  void share();

  const Cluster& cluster_;
  const Profile& profile_;
  const int networks_;      // of a node
  std::vector<int> users_;  // by port: of a node one inside, then out and in by network
  std::vector<Transfer> transfers_;
  int next_id_ = 0;
};

}  // namespace hdt::plan
