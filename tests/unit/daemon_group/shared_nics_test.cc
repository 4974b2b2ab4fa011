// shared_nics_test.cc: two groups of different classes on the same NICs, each of which weighs its parts by
// what the other one leaves of each NIC, while a third class comes and goes at random. Groups that made way
// for each other without end would change their parts all the time.
//
// The model: nodes with one NIC each, and groups that make one allreduce after the other by direct exchange.
// A group's node i carries 1 + w_i (n - 2) for each byte (owner_weights.h). A NIC gives each group its share,
// or what the others leave. What a group carries follows from its slowest node.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <vector>

#include "collectives/owner_weights.h"
#include "daemon/group/tuner.h"
#include "tests/unit/collectives/owner_rates.h"
#include "transports/link/part_watch.h"

namespace hdt::daemon {
namespace {

using collectives::kWeightUnits;
using transport::PartWatch;

constexpr int64_t kStepNs = 250 * kNsPerMs;  // as often as groups look
constexpr size_t kGroups = 2;

// As EngineGroup and RateChanges do it, with the parts of the nodes in place of those of links.
class GroupOfNodes {
 public:
  GroupOfNodes(std::vector<uint64_t> nic_rates, double patience)
      : nic_rates_(std::move(nic_rates)),
        rates_(nic_rates_),
        used_(nic_rates_.size(), 0),
        watches_(nic_rates_.size(), PartWatch(patience)) {
    weigh();
  }

  // Of node i, for each byte of the operation.
  double load(size_t i) const {
    const double n = static_cast<double>(nic_rates_.size());
    const double w = weights_.empty() ? 1 / n : static_cast<double>(weights_[i]) / kWeightUnits;
    return 1 + w * (n - 2);
  }
  // Others leave it those parts of the NICs, so the group carries as much as its slowest node can.
  void carry(const std::vector<double>& left) {
    double slowest = 1e300;
    for (size_t i = 0; i < nic_rates_.size(); ++i)
      slowest = std::min(slowest, left[i] * static_cast<double>(nic_rates_[i]) / load(i));
    for (size_t i = 0; i < nic_rates_.size(); ++i)
      used_[i] = slowest * load(i) / static_cast<double>(nic_rates_[i]);
  }
  // The others have left it so much of the NICs since the latest look. Changes the parts where that is worth
  // it.
  void follow(const std::vector<double>& left, int64_t since, int64_t now) {
    std::vector<uint64_t> rates;
    for (size_t i = 0; i < nic_rates_.size(); ++i) {
      watches_[i].look(left[i], since, now);
      rates.push_back(static_cast<uint64_t>(static_cast<double>(nic_rates_[i]) * watches_[i].part()));
    }
    if (rates == rates_ || now < next_change_ns_) return;
    const std::vector<uint32_t> before = weights_;
    std::swap(rates_, rates);
    weigh();
    const double gain =
        collectives::seconds_of_a_byte(before, links()) / collectives::seconds_of_a_byte(weights_, links());
    if (!(weights_.empty() && !before.empty() ? gain > 1 : gain >= kLeastGainOfParts)) {
      rates_ = rates;
      weights_ = before;
      return;
    }
    next_change_ns_ = now + kNsPerSecond;
    changed_ns = now;
    ++changes;
  }
  const std::vector<double>& used() const { return used_; }

  int changes = 0;
  int64_t changed_ns = 0;

 private:
  void weigh() {
    weights_ = collectives::owner_weights(links());
    if (collectives::gain_of(weights_, links()) < kLeastGainOfParts) weights_.clear();
  }

  std::vector<collectives::OwnerRates> links() const { return collectives::testing::links_alone(rates_); }

  const std::vector<uint64_t> nic_rates_;
  std::vector<uint64_t> rates_;
  std::vector<uint32_t> weights_;
  std::vector<double> used_;
  std::vector<PartWatch> watches_;
  int64_t next_change_ns_ = 0;
};

class SharedNics {
 public:
  SharedNics(size_t nodes, uint64_t seed) : random(seed), third_(nodes, 0) {
    const std::vector<uint64_t> nic_rates = rates(nodes);
    // Classes of nearly the same patience are few (NicShare).
    const double patience = std::uniform_real_distribution<>(1, 1.9)(random);
    for (const double more : {0.0, 0.1}) groups.emplace_back(nic_rates, patience + more);
  }

  // The third class uses some NICs more or less from now on, or not at all.
  void change_third() {
    for (double& use : third_) {
      if (random() % 3 == 0) use = random() % 2 == 0 ? 0 : std::uniform_real_distribution<>(0, 0.9)(random);
    }
  }
  void pass(double seconds) {
    for (const int64_t until = now + static_cast<int64_t>(seconds * kNsPerSecond); now < until;) {
      // Each group takes what the other leaves, and leaves what it does not take, until both have settled.
      for (int round = 0; round < 6; ++round) {
        for (size_t g = 0; g < kGroups; ++g) groups[g].carry(left_for(g));
      }
      const int64_t since = now;
      now += kStepNs;
      for (size_t g = 0; g < kGroups; ++g) groups[g].follow(left_for(g), since, now);
    }
  }

  std::mt19937_64 random;

 private:
  // As NicShare has it for three classes of one weight.
  std::vector<double> left_for(size_t group) const {
    std::vector<double> left;
    for (size_t i = 0; i < third_.size(); ++i) {
      const double other = groups[1 - group].used()[i];
      const double classes = 1 + (other > 0 ? 1 : 0) + (third_[i] > 0 ? 1 : 0);
      left.push_back(std::max(1 / classes, 1 - other - third_[i]));
    }
    return left;
  }
  std::vector<uint64_t> rates(size_t nodes) {
    std::vector<uint64_t> of_nodes(nodes, 1'000'000'000);
    for (uint64_t& rate : of_nodes) rate /= random() % 4 == 0 ? 2 : 1;
    return of_nodes;
  }

  std::vector<double> third_;

 public:
  std::vector<GroupOfNodes> groups;
  int64_t now = 1;
};

TEST(SharedNics, GroupsThatMakeWayForEachOtherComeToRest) {
  const uint64_t first_seed = std::random_device{}();
  std::cout << "seed " << first_seed << "\n";
  int changes = 0;
  for (uint64_t i = 0; i < 200; ++i) {
    SCOPED_TRACE("seed " + std::to_string(first_seed + i));
    SharedNics nics(3 + i % 7, first_seed + i);
    const int loads = static_cast<int>(nics.random() % 20);
    for (int load = 0; load < loads; ++load) {
      nics.change_third();
      nics.pass(std::exponential_distribution<>(0.1)(nics.random));
    }
    nics.pass(400);
    const int64_t rest_ns = nics.now;
    nics.pass(100);
    for (const GroupOfNodes& group : nics.groups) {
      EXPECT_LT(group.changed_ns, rest_ns);
      changes += group.changes;
    }
  }
  EXPECT_GT(changes, 300);
}

}  // namespace
}  // namespace hdt::daemon
