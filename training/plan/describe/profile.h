// profile.h: what was measured: seconds and memory of each layer kind on each device kind, and links by
// message size. Measured by a tool, written by hand or imported; the predictor knows nothing else about
// hardware.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/model.h"

namespace hdt::plan {

struct ComputeKey {
  std::string device;
  std::string layer;
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  auto operator<=>(const ComputeKey&) const = default;
};

// One unit, one micro-batch, on one device of a tensor-parallel group.
struct LayerCost {
  double forward = 0;            // seconds
  double input_gradient = 0;     // seconds
  double weight_gradient = 0;    // seconds
  double update = 0;             // seconds of the optimizer, once a step
  int64_t activation_bytes = 0;  // kept from forward to backward

  double backward() const { return input_gradient + weight_gradient; }
  bool operator==(const LayerCost&) const = default;
};

// Between two nodes (all their devices together), or inside one.
struct LinkKey {
  std::string from;
  std::string to;
  bool inside = false;
  std::string nic = {};  // kind of the NICs (cluster.h); empty: of any for which there is no other entry
  auto operator<=>(const LinkKey&) const = default;
};

struct Link {
  double latency = 0;  // seconds
  // Message size in bytes, bytes per second; sizes increase. Between points the rate is linear in log(size),
  // outside it is that of the nearest point.
  std::vector<std::pair<double, double>> bandwidth;
  // The same of an allreduce, over each hop of its ring; empty: as messages.
  std::vector<std::pair<double, double>> allreduce = {};

  double rate(double bytes) const;
  double allreduce_rate(double bytes) const;
  bool operator==(const Link&) const = default;
};

// What collectives cost besides links (collectives/cost_model.h). What was not measured costs nothing.
struct CollectiveFigures {
  double step_overhead = 0;                                      // seconds of CPU a step
  double reduce_rate = std::numeric_limits<double>::infinity();  // bytes/s of combining
  double copy_rate = std::numeric_limits<double>::infinity();    // bytes/s
  int64_t piece_bytes = int64_t{512} << 10;  // an operation is cut into pieces of at most so much
  bool operator==(const CollectiveFigures&) const = default;
};

struct Profile {
  std::string name;
  // Computation takes so many times longer while a message or reduction of its worker is under way: where the
  // device kind has no number of its own, and by device kind.
  double overlap_slowdown = 1;
  std::map<std::string, double> overlap_slowdowns = {};
  CollectiveFigures collective;
  std::map<ComputeKey, LayerCost> compute;
  std::map<LinkKey, Link> links;

  const LayerCost* find(const ComputeKey& key) const;
  double slowdown_of(const std::string& device) const;
  // Links are the same in both directions unless both are given.
  const Link* find_link(const std::string& from, const std::string& to, bool inside,
                        const std::string& nic = {}) const;
  // Measured micro-batch sizes of a layer, increasing.
  std::vector<int> micro_batch_sizes(const std::string& device, const std::string& layer,
                                     int tensor_parallel) const;
};

// From seconds of the same computation alone and beside communication, measured in turn: the median of the
// ratios, so that what disturbs the machine for a while disturbs both of a pair; at least 1. Of at least one
// pair.
double measured_slowdown(const std::vector<double>& alone, const std::vector<double>& beside);

// Every device kind must have every layer kind of the model for each (tensor-parallel degree, micro-batch
// size) that it has for any: a profile with holes would make some plans look impossible.
Status check_profile(const Profile& profile, const Model& model);

}  // namespace hdt::plan
