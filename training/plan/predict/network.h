// network.h: transfers that share links. A node has a port out and a port in for each kind of NIC, and
// one port for its inside. All transfers that use a port at the same time share it equally.
//
// A transfer moves at the rate of its slowest hop. The rate of a hop is that of the link for this
// message size, divided by the number of users of the busier of its two ports. If a transfer is slowed
// elsewhere, the rest of its share is not handed to the others (no max-min fairness), so rates are never
// too high.
#pragma once

#include <string>
#include <vector>

#include "training/plan/describe/cluster.h"
#include "training/plan/describe/profile.h"

namespace hdt::plan {

// One way of a transfer, from a node to a node.
struct Hop {
  // Indices into the cluster's nodes.
  int from = 0;
  int to = 0;
  // By how much the transfer raises the number of users of the port out of `from` and of the port into
  // `to`. More than 1 if it stands for equal transfers of other replicas. A hop inside a node has one
  // port, which counts `from_users`.
  int from_users = 1;
  int to_users = 1;
  // `from` and `to` are the same index, which stands for two different nodes that are equal
  // (equal_replicas.h).
  bool crosses = false;

  // Whether the hop stays inside a node, and so has one port.
  bool inside() const { return from == to && !crosses; }
};

// Which of a link's rates a transfer has: Link::rate or Link::allreduce_rate.
enum class TransferKind { kMessage, kAllreduce };

// The transfers that are under way at one moment of a simulation. The owner, StepSimulation, asks for
// the next end and lets time pass; Network has no clock of its own. Cluster and profile must outlive it.
// Every link that is asked for must exist (check_plan).
class Network {
 public:
  Network(const Cluster& cluster, const Profile& profile);

  // Begins to move `bytes` bytes over each of the hops, over all of them at once. `message_bytes` is the
  // size by which the profile's rate is chosen, and `efficiency` is the part of that rate that is
  // reached. The transfer first waits for the longest latency of its hops, as often as it has `messages` that
  // follow each other. Returns an id, unique in this network.
  int start(TransferKind kind, const std::vector<Hop>& hops, double bytes, double message_bytes,
            double efficiency, int messages = 1);

  // Begins a transfer that takes `seconds` if nothing else uses the ports of its hops, and longer the
  // more they are shared. Returns an id.
  int start_timed(const std::vector<Hop>& hops, double seconds);

  // Seconds until the next transfer ends, if none is started before that. Infinite if there is none.
  double next_end() const;
  // Lets `seconds` pass, at most next_end(). Returns the ids of the transfers that have ended; these are
  // forgotten.
  std::vector<int> advance(double seconds);

 private:
  // A transfer under way.
  struct Transfer {
    int id = 0;
    // Seconds still to wait before bytes move. A waiting transfer counts as a user of its ports.
    double latency = 0;
    // Bytes still to move over each hop.
    double bytes = 0;
    // Bytes per second at the moment. Set by share().
    double rate = 0;
    // Two entries a hop, out and in; both are the same for a hop inside a node.
    std::vector<int> ports;
    // By entry of `ports`: what this transfer adds to users_.
    std::vector<int> port_users;
    // By hop: the rate if the port had one user.
    std::vector<double> hop_rates;
  };
  // Gives the transfer its id and its ports, and sets all rates.
  int add(Transfer transfer);
  // Appends the two ports of a hop.
  void add_ports(const Hop& hop, Transfer& transfer) const;
  // Adds (sign 1) or removes (sign -1) a transfer's users.
  void use_ports(const Transfer& transfer, int sign);
  // Sets the rate of every transfer. Call it after each change of users_.
  void share();

  const Cluster& cluster_;
  const Profile& profile_;
  // Ports of each direction that a node has, Cluster::num_networks().
  const int networks_;
  // The number of users by port. A node has 2 x networks_ + 1 ports: its inside, then out and in of each
  // network.
  std::vector<int> users_;
  std::vector<Transfer> transfers_;
  int next_id_ = 0;
};

}  // namespace hdt::plan
