// network.cc: equal shares of ports. The number of transfers is small, as one replica stands for its
// equals, so every change sets all rates anew.
#include "training/plan/predict/network.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "training/plan/describe/node_link.h"

namespace hdt::plan {

Network::Network(const Cluster& cluster, const Profile& profile)
    : cluster_(cluster),
      profile_(profile),
      networks_(cluster.num_networks()),
      users_((2 * networks_ + 1) * cluster.nodes.size(), 0) {}

// The order of a node's ports is that of users_: inside, then out and in by network.
void Network::add_ports(const Hop& hop, Transfer& transfer) const {
  const bool inside = hop.inside();
  const int from = (2 * networks_ + 1) * hop.from;
  const int to = (2 * networks_ + 1) * hop.to;
  const int network = inside ? 0 : cluster_.nic_between(cluster_.nodes[hop.from], cluster_.nodes[hop.to]);
  transfer.ports.push_back(inside ? from : from + 1 + 2 * network);
  transfer.ports.push_back(inside ? from : to + 2 + 2 * network);
  transfer.port_users.push_back(hop.from_users);
  transfer.port_users.push_back(inside ? 0 : hop.to_users);
}

int Network::start(TransferKind kind, const std::vector<Hop>& hops, double bytes, double message_bytes,
                   double efficiency, int messages) {
  Transfer transfer;
  transfer.bytes = bytes;
  for (const Hop& hop : hops) {
    const bool inside = hop.inside();
    const Link& link =
        *link_between(cluster_, profile_, cluster_.nodes[hop.from], cluster_.nodes[hop.to], inside);
    // All hops move at once, so the longest latency counts once.
    transfer.latency = std::max(transfer.latency, messages * link.latency);
    transfer.hop_rates.push_back(efficiency * (kind == TransferKind::kAllreduce
                                                   ? link.allreduce_rate(message_bytes)
                                                   : link.rate(message_bytes)));
    add_ports(hop, transfer);
  }
  return add(std::move(transfer));
}

// The transfer's "bytes" are seconds, so its rate must be 1 when it is alone. It may itself be several
// users of a port; the rate of each hop is therefore multiplied by the number of its own users.
int Network::start_timed(const std::vector<Hop>& hops, double seconds) {
  Transfer transfer;
  transfer.bytes = seconds;
  for (const Hop& hop : hops) add_ports(hop, transfer);
  std::map<int, int> own;
  for (size_t port = 0; port < transfer.ports.size(); ++port)
    own[transfer.ports[port]] += transfer.port_users[port];
  for (size_t hop = 0; hop < hops.size(); ++hop)
    transfer.hop_rates.push_back(std::max(own[transfer.ports[2 * hop]], own[transfer.ports[2 * hop + 1]]));
  return add(std::move(transfer));
}

int Network::add(Transfer transfer) {
  transfer.id = next_id_++;
  use_ports(transfer, 1);
  transfers_.push_back(std::move(transfer));
  share();
  return next_id_ - 1;
}

// A port may occur twice in a transfer; its users are then added twice.
void Network::use_ports(const Transfer& transfer, int sign) {
  for (size_t port = 0; port < transfer.ports.size(); ++port)
    users_[transfer.ports[port]] += sign * transfer.port_users[port];
}

// The slowest hop determines the rate, and on each hop the busier port.
void Network::share() {
  for (Transfer& transfer : transfers_) {
    transfer.rate = std::numeric_limits<double>::infinity();
    for (size_t hop = 0; hop < transfer.hop_rates.size(); ++hop) {
      const int users = std::max(users_[transfer.ports[2 * hop]], users_[transfer.ports[2 * hop + 1]]);
      transfer.rate = std::min(transfer.rate, transfer.hop_rates[hop] / users);
    }
  }
}

double Network::next_end() const {
  double next = std::numeric_limits<double>::infinity();
  for (const Transfer& transfer : transfers_)
    next = std::min(next, transfer.latency + transfer.bytes / transfer.rate);
  return next;
}

// 1. Let time pass for each transfer: first its latency, then its bytes.
// 2. Remove the transfers that have ended, and their users.
// 3. Set the rates anew, as the others now share with fewer.
std::vector<int> Network::advance(double seconds) {
  std::vector<int> ended;
  // A transfer whose remaining time is only a rounding error would never end: it is taken as ended.
  constexpr double kRounding = 1e-12;
  for (Transfer& transfer : transfers_) {
    // Latency passes first, then bytes move. `left` is computed before either is changed.
    const double left = transfer.latency + transfer.bytes / transfer.rate - seconds;
    const double waited = std::min(transfer.latency, seconds);
    transfer.latency -= waited;
    transfer.bytes -= (seconds - waited) * transfer.rate;
    if (left > kRounding) continue;
    ended.push_back(transfer.id);
    use_ports(transfer, -1);
  }
  if (ended.empty()) return ended;
  std::erase_if(transfers_,
                [&](const Transfer& transfer) { return std::ranges::count(ended, transfer.id) > 0; });
  share();
  return ended;
}

}  // namespace hdt::plan
