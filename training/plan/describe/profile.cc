// profile.cc: finds measurements and interpolates between them.
#include "training/plan/describe/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "base/median.h"

namespace hdt::plan {

namespace {

// Linear in the logarithm of the size, since sizes are measured in powers of two. No extrapolation: a
// rate that still rises at the largest size would soon be above what the link can carry.
double rate_at(const std::vector<std::pair<double, double>>& bandwidth, double bytes) {
  if (bytes <= bandwidth.front().first) return bandwidth.front().second;
  if (bytes >= bandwidth.back().first) return bandwidth.back().second;
  const auto above =
      std::ranges::lower_bound(bandwidth, bytes, {}, [](const auto& point) { return point.first; });
  const auto below = above - 1;
  // How far `bytes` is on the way from the point below to the one above, on the logarithmic scale.
  const double share = std::log(bytes / below->first) / std::log(above->first / below->first);
  return below->second + share * (above->second - below->second);
}

}  // namespace

double Link::rate(double bytes) const { return rate_at(bandwidth, bytes); }

double Link::allreduce_rate(double bytes) const {
  return rate_at(allreduce.empty() ? bandwidth : allreduce, bytes);
}

const LayerCost* Profile::find(const ComputeKey& key) const {
  const auto found = compute.find(key);
  return found == compute.end() ? nullptr : &found->second;
}

double Profile::slowdown_of(const std::string& device) const {
  const auto found = overlap_slowdowns.find(device);
  return found == overlap_slowdowns.end() ? overlap_slowdown : found->second;
}

int64_t Profile::fixed_bytes_of(const std::string& device) const {
  const auto found = fixed_bytes.find(device);
  return found == fixed_bytes.end() ? 0 : found->second;
}

double measured_slowdown(const std::vector<double>& alone, const std::vector<double>& beside) {
  std::vector<double> ratios;
  for (size_t i = 0; i < std::min(alone.size(), beside.size()); ++i) ratios.push_back(beside[i] / alone[i]);
  return std::max(1.0, median(ratios));
}

const Link* Profile::find_link(const std::string& from, const std::string& to, bool inside,
                               const std::string& nic) const {
  auto found = links.find({from, to, inside, nic});
  // A link that was measured in one direction is taken to be the same in the other.
  if (found == links.end()) found = links.find({to, from, inside, nic});
  if (found != links.end()) return &found->second;
  return nic.empty() ? nullptr : find_link(from, to, inside);
}

// The map is ordered by device, layer, degree and micro-batch size, so the wanted keys are neighbours.
std::vector<int> Profile::micro_batch_sizes(const std::string& device, const std::string& layer,
                                            int tensor_parallel) const {
  std::vector<int> sizes;
  for (auto entry = compute.lower_bound({device, layer, tensor_parallel, 0});
       entry != compute.end() && entry->first.device == device && entry->first.layer == layer &&
       entry->first.tensor_parallel == tensor_parallel;
       ++entry) {
    if (!entry->second.derived) sizes.push_back(entry->first.micro_batch_size);
  }
  return sizes;
}

bool has_recomputed_attention(const Profile& profile, const Model& model, const std::string& device,
                              int tensor_parallel, int micro_batch_size) {
  return std::all_of(model.layers.begin() + 1, model.layers.end() - 1, [&](const LayerKind& kind) {
    const LayerCost* const cost = profile.find({device, kind.name, tensor_parallel, micro_batch_size});
    return cost && cost->recomputed_attention;
  });
}

Status check_profile(const Profile& profile, const Model& model) {
  // Each (device kind, degree, micro-batch size) that is measured for anything.
  std::set<std::tuple<std::string, int, int>> measured;
  for (const auto& [key, cost] : profile.compute)
    measured.insert({key.device, key.tensor_parallel, key.micro_batch_size});
  for (const auto& [device, tensor_parallel, micro_batch_size] : measured) {
    for (const LayerKind& kind : model.layers) {
      if (!profile.find({device, kind.name, tensor_parallel, micro_batch_size}))
        return {Code::kConfig,
                fmt::format("compute: layer '{}' is missing for device '{}' with tensor_parallel {} "
                            "and micro_batch_size {}",
                            kind.name, device, tensor_parallel, micro_batch_size)};
    }
  }
  return Status::ok();
}

}  // namespace hdt::plan
