// published_json.cc: the profile, the links and the sizes of a published set.
#include "training/plan/validate/published_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "base/foreign_json.h"

namespace hdt::plan {
namespace {

using nlohmann::json;

// The published files have some hundred KiB.
constexpr size_t kMaxPublishedBytes = size_t{64} << 20;

constexpr const char* kEmbedding = "embedding";
constexpr const char* kBlock = "transformer";
constexpr const char* kHead = "head";
constexpr const char* kParameterBytes = "params_bytes";

// The set's tool (megatron/training.py there) measures one small model: the embedding, two transformer
// layers and the head. It writes the time of that model's optimizer step beside every layer. A unit's part
// is in proportion to its parameters.
constexpr int kProfiledBlocks = 2;

// `where` is the place for the message.
double positive(const json& value, const std::string& where) {
  if (!value.is_number() || !(value.get<double>() > 0))
    throw BrokenSet(fmt::format("{}: {} given, expected a number above 0", where, value.dump()));
  return value.get<double>();
}

const json& at(const json& object, const std::string& key, const std::string& where) {
  if (!object.is_object() || !object.contains(key))
    throw BrokenSet(fmt::format("{}: '{}' is missing", where, key));
  return object.at(key);
}

// The mean of a field over the units first .. end - 1. Layers are keyed by their number as text.
template <typename Field>
double mean(size_t first, size_t end, Field field) {
  double sum = 0;
  for (size_t unit = first; unit < end; ++unit) sum += field(std::to_string(unit));
  return sum / static_cast<double>(end - first);
}

// Units that become one layer kind.
struct UnitRange {
  const char* kind;
  size_t first;
  size_t end;
};
// The first unit is the embedding, the last one the head.
std::vector<UnitRange> parts_of(size_t units) {
  return {{kEmbedding, 0, 1}, {kBlock, 1, units - 1}, {kHead, units - 1, units}};
}

// The coefficients by the number of GPUs of each node that sent at once. Empty if the pair was not
// measured.
std::map<int, std::vector<double>> fitted_rates(const json& links, const std::string& zone,
                                                const std::string& from, const std::string& to) {
  std::map<int, std::vector<double>> rates;
  const std::string where = "links.json: " + zone + "." + from;
  for (const auto& [count, by_zone] :
       at(at(links, zone, "links.json"), from, "links.json: " + zone).items()) {
    if (!by_zone.contains(zone) || !by_zone.at(zone).contains(to) || !by_zone.at(zone).at(to).contains(count))
      continue;
    auto fit = by_zone.at(zone).at(to).at(count).at(0).get<std::vector<double>>();
    if (fit.size() != 3) throw BrokenSet(where + ": expected three coefficients");
    rates.emplace(std::stoi(count), std::move(fit));
  }
  return rates;
}

// 11 points of the fit GB/s = a x^2 + b x + c, with x = log2(message in MiB), from 1 MiB to 1 GiB.
std::vector<std::pair<double, double>> points_of_fit(const std::vector<double>& fit,
                                                     const std::string& where) {
  std::vector<std::pair<double, double>> points;
  for (int x = 0; x <= 10; ++x) {
    const double rate = fit[0] * x * x + fit[1] * x + fit[2];
    points.emplace_back(std::ldexp(1048576.0, x), 1e9 * positive(json(rate), where));
  }
  return points;
}

// The set has no latencies. Its rates with several GPUs are sums over GPUs, each of which sends a message
// of its own. The runs sent whole activations from each GPU of a tensor-parallel group to its partner, as
// DeepSpeed does unless pipelines are partitioned. So a message moves at the rate of one GPU, however many
// copies of it go beside. The rings of an allreduce are of different gradients, one ring a GPU, and their
// rates add up.
Link link_of_fits(const std::map<int, std::vector<double>>& fits, const std::string& where) {
  Link link;
  link.bandwidth = points_of_fit(fits.begin()->second, where);
  if (fits.size() > 1) link.allreduce = points_of_fit(fits.rbegin()->second, where);
  return link;
}

// The set gives rates for each pair of device kinds. A pair of equal kinds is the link inside a node
// if there are several kinds, and otherwise the link between nodes.
void add_links(Profile& profile, const json& links, const std::string& zone,
               const std::vector<std::string>& devices) {
  for (const std::string& from : devices) {
    // The best link to another kind.
    std::optional<Link> network;
    for (const std::string& to : devices) {
      const std::string where = fmt::format("links.json: {} to {}", from, to);
      const auto fits = fitted_rates(links, zone, from, to);
      if (fits.empty()) continue;
      const Link link = link_of_fits(fits, where);
      profile.links[{from, to, from == to && devices.size() > 1}] = link;
      if (from != to && (!network || link.bandwidth.back().second > network->bandwidth.back().second))
        network = link;
    }
    // In a mixed set, the entry of a kind with itself may have been measured inside a machine: with 1
    // Gb/s Ethernet it is 2.8 GB/s. So between two machines of a kind, the rate that the kind reaches to
    // other kinds is taken.
    if (network) profile.links[{from, from, false}] = *network;
  }
}

}  // namespace

json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw BrokenSet(path + ": cannot be read");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  auto value = parse_foreign_json(text, kMaxPublishedBytes);
  if (!value.is_ok()) throw BrokenSet(path + ": " + value.status().message());
  return value.take();
}

std::string published_model_name(const PublishedFiles& files, const std::vector<std::string>& devices,
                                 size_t units) {
  std::vector<std::string> found;
  for (const auto& model : files.profiles.items()) {
    const auto& by_device = model.value();
    const bool fits = std::ranges::all_of(devices, [&](const std::string& device) {
      return by_device.contains(device) && by_device.at(device).begin()->begin()->size() == units;
    });
    if (fits) found.push_back(model.key());
  }
  if (found.size() == 1) return found.front();
  throw BrokenSet(fmt::format("profiles.json: {} models have {} layers and {}, expected one", found.size(),
                              units, fmt::join(devices, ", ")));
}

Model published_model(const PublishedFiles& files, const std::string& name, size_t units) {
  Model model;
  model.name = name;
  for (const UnitRange& part : parts_of(units)) {
    LayerKind kind;
    kind.name = part.kind;
    kind.count = static_cast<int>(part.end - part.first);
    // Outputs are taken to be the same for all degrees; the last one read counts.
    for (const auto& [degree, layers] : at(files.sizes, name, "llm_info.json").items()) {
      const auto field = [&, &layers = layers](const char* wanted) {
        return [&layers, wanted](const std::string& unit) {
          return positive(at(at(layers, unit, "llm_info.json"), wanted, "llm_info.json"), "llm_info.json");
        };
      };
      kind.parameter_bytes[std::stoi(degree)] =
          std::llround(mean(part.first, part.end, field(kParameterBytes)));
      kind.output_bytes = std::llround(mean(part.first, part.end, field("act_output_bytes")));
    }
    model.layers.push_back(std::move(kind));
  }
  return model;
}

Profile published_profile(const PublishedFiles& files, const std::string& model, size_t units,
                          const std::vector<std::string>& devices, const std::string& zone) {
  Profile profile;
  profile.name = model;
  const json& sizes = at(files.sizes, model, "llm_info.json");
  const std::vector<UnitRange> parts = parts_of(units);
  for (const std::string& device : devices) {
    for (const auto& [size, by_degree] : files.profiles.at(model).at(device).items()) {
      for (const auto& [degree, layers] : by_degree.items()) {
        if (!sizes.contains(degree)) continue;
        const std::string where = fmt::format("profiles.json: {}.{}.{}.{}", model, device, size, degree);
        const auto bytes_of = [&, &degree = degree](const UnitRange& part, const char* field) {
          return mean(part.first, part.end, [&](const std::string& unit) {
            return positive(at(at(sizes.at(degree), unit, "llm_info.json"), field, "llm_info.json"),
                            "llm_info.json");
          });
        };
        double profiled_bytes = 0;
        for (const UnitRange& part : parts)
          profiled_bytes +=
              (std::string_view(part.kind) == kBlock ? kProfiledBlocks : 1) * bytes_of(part, kParameterBytes);
        for (const UnitRange& part : parts) {
          const auto seconds = [&, &layers = layers](size_t index) {
            return mean(part.first, part.end, [&](const std::string& unit) {
              return positive(at(layers, unit, where).at(index), fmt::format("{}.{}", where, unit));
            });
          };
          // The set has one time for both gradients. Each gets half; schedules that use them separately
          // cannot be compared with this set.
          const double gradient = seconds(1) / 2;
          profile.compute[{device, part.kind, std::stoi(degree), std::stoi(size)}] = {
              seconds(0), gradient, gradient, seconds(2) * bytes_of(part, kParameterBytes) / profiled_bytes,
              std::llround(std::stoi(size) * bytes_of(part, "act_mem_bytes"))};
        }
      }
    }
  }
  add_links(profile, files.links, zone, devices);
  return profile;
}

}  // namespace hdt::plan
