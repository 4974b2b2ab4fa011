// profile.h: what was measured of the hardware: seconds and memory of each layer kind on each device
// kind, and the rates of links by message size. A profile is measured by a tool, written by hand or
// imported. The predictor knows nothing else about hardware. Times are seconds, sizes are bytes, rates
// are bytes per second.
#pragma once

#include <compare>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "training/plan/describe/model.h"

namespace hdt::plan {

// The key of Profile::compute. The order of the members matters: micro_batch_sizes()
// walks over keys that differ in the last one only.
struct ComputeKey {
  std::string device;
  std::string layer;
  int tensor_parallel = 1;
  int micro_batch_size = 1;
  auto operator<=>(const ComputeKey&) const = default;
};

// What changes for a layer whose attention is computed again for its backward (recompute_granularity
// "selective").
struct RecomputedAttention {
  // Seconds that its forward and its backward take more, together.
  double more_seconds = 0;
  // Memory that is kept from the forward to the backward, at most LayerCost::activation_bytes. While its
  // backward runs, a layer has all of these.
  int64_t activation_bytes = 0;
  bool operator==(const RecomputedAttention&) const = default;
};

// The cost of one unit for one micro-batch, on one device of a tensor-parallel group.
struct LayerCost {
  // Seconds.
  double forward = 0;
  // Seconds of the backward's part that the stage before waits for.
  double input_gradient = 0;
  // Seconds of the backward's part that only the update needs.
  double weight_gradient = 0;
  // Seconds of the optimizer, once a step.
  double update = 0;
  // Memory that is kept from the forward to the backward.
  int64_t activation_bytes = 0;
  // No value: it was not measured, or the unit has no attention.
  std::optional<RecomputedAttention> recomputed_attention = {};
  // Computed from other micro-batch sizes (micro_batch_sizes.h), not measured.
  bool derived = false;

  // 1F1B computes both gradients at once.
  double backward() const { return input_gradient + weight_gradient; }
  bool operator==(const LayerCost&) const = default;
};

// A link between two nodes, which all devices of these nodes share, or the link inside one node.
struct LinkKey {
  // Device kinds of the two ends.
  std::string from;
  std::string to;
  // True for the link inside a node; `from` and `to` are then equal.
  bool inside = false;
  // The kind of NIC (cluster.h). Empty: for NIC kinds that have no entry of their own.
  std::string nic = {};
  auto operator<=>(const LinkKey&) const = default;
};

// The measurements of one link.
struct Link {
  // Seconds that pass before the first byte has arrived.
  double latency = 0;
  // (message size in bytes, bytes per second), sizes increasing, at least one point. Between two points
  // the rate is linear in log(size); outside of them it is that of the nearest point.
  std::vector<std::pair<double, double>> bandwidth;
  // The same for an allreduce: the rate over each hop of its ring, by the size of the whole buffer.
  // Empty: the rates of messages apply.
  std::vector<std::pair<double, double>> allreduce = {};

  // Rates for a message, or for an allreduce, of `bytes`.
  double rate(double bytes) const;
  double allreduce_rate(double bytes) const;
  bool operator==(const Link&) const = default;
};

// The cost of collectives besides links (collectives/cost_model.h). The defaults say that whatever was not
// measured costs nothing.
struct CollectiveFigures {
  // Seconds of processor time for each step of a schedule.
  double step_overhead = 0;
  // Bytes per second of adding up.
  double reduce_rate = std::numeric_limits<double>::infinity();
  // Bytes per second of copying.
  double copy_rate = std::numeric_limits<double>::infinity();
  // libhdt cuts an operation into chunks of at most this size, which overlap each other.
  int64_t piece_bytes = int64_t{512} << 10;
  bool operator==(const CollectiveFigures&) const = default;
};

// All measurements. check_profile() says whether they cover a model.
struct Profile {
  std::string name;
  // Computation takes this many times longer while a message or a reduction of its worker is under way;
  // at least 1. It applies to the device kinds that are not in `overlap_slowdowns`.
  double overlap_slowdown = 1;
  std::map<std::string, double> overlap_slowdowns = {};
  // By device kind: the bytes that a process takes on a device before it has a model: its context, libraries
  // and buffers.
  std::map<std::string, int64_t> fixed_bytes = {};
  CollectiveFigures collective;
  std::map<ComputeKey, LayerCost> compute;
  std::map<LinkKey, Link> links;

  // Null if it was not measured. Valid as long as the profile is not changed.
  const LayerCost* find(const ComputeKey& key) const;
  // The device kind's entry in `overlap_slowdowns`, or `overlap_slowdown`.
  double slowdown_of(const std::string& device) const;
  // The device kind's entry in `fixed_bytes`; 0 if it was not measured.
  int64_t fixed_bytes_of(const std::string& device) const;
  // The link between two device kinds over `nic`, or null. Entries are tried in this order: the pair,
  // the pair the other way round, then both without a NIC kind. So a link is the same in both directions
  // unless both are given.
  const Link* find_link(const std::string& from, const std::string& to, bool inside,
                        const std::string& nic = {}) const;
  // The micro-batch sizes that were measured for a layer kind, increasing.
  std::vector<int> micro_batch_sizes(const std::string& device, const std::string& layer,
                                     int tensor_parallel) const;
};

// The slow-down of computation beside communication, from seconds of the same computation alone and
// beside communication. Both are measured in turns; the result is the median of the pairs' ratios, so
// that what disturbs the machine for a while disturbs both members of a pair. At least 1. Needs at least
// one pair; entries without a partner are ignored.
double measured_slowdown(const std::vector<double>& alone, const std::vector<double>& beside);

// Whether the recomputation of attention was measured for all layers of the model, which are all units but
// the first and the last one.
bool has_recomputed_attention(const Profile& profile, const Model& model, const std::string& device,
                              int tensor_parallel, int micro_batch_size);

// kConfig unless every device kind has every layer kind of the model, for each (tensor-parallel degree,
// micro-batch size) that the device kind has for any layer. A profile with holes would make some plans
// look impossible.
Status check_profile(const Profile& profile, const Model& model);

}  // namespace hdt::plan
