// weight_check.cc: from the unit to the tensor to the rank.
#include "training/engine/weight_check.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/crc32c.h"

namespace hdt::training {
namespace {

constexpr size_t kMostNameBytes = 512;

uint32_t crc_of(ConstTypedSpan values) { return crc32c(0, values.bytes()); }

// The first index for which two ranks have different numbers; nothing if there is none. A rank has none for
// what it does not hold. A double holds 32 bits exactly. The greatest number and the greatest of their
// negatives tell whether all are one.
Result<std::optional<size_t>> first_difference(std::span<const std::optional<uint32_t>> mine,
                                               Messenger& messenger) {
  constexpr double kNone = std::numeric_limits<double>::lowest();
  std::vector<double> greatest(2 * mine.size(), kNone);
  for (size_t i = 0; i < mine.size(); ++i) {
    if (!mine[i]) continue;
    greatest[2 * i] = *mine[i];
    greatest[2 * i + 1] = -greatest[2 * i];
  }
  HDT_RETURN_IF_ERROR(messenger.max_over_world(greatest));
  for (size_t i = 0; i < mine.size(); ++i) {
    // Nobody has a tied unit where the model has none.
    if (greatest[2 * i] != kNone && greatest[2 * i] != -greatest[2 * i + 1]) return std::optional(i);
  }
  return std::optional<size_t>();
}

// The CRC of each tensor of a unit; none on ranks that do not hold it. All ranks get as many.
Result<std::vector<std::optional<uint32_t>>> crcs_of_tensors(int unit, UnitMemory& memory,
                                                             Messenger& messenger) {
  const bool is_here = memory.contains(unit);
  double count = is_here ? static_cast<double>(memory.tensors(unit).size()) : 0;
  HDT_RETURN_IF_ERROR(messenger.max_over_world({&count, 1}));
  std::vector<std::optional<uint32_t>> crcs(static_cast<size_t>(count));
  if (!is_here) return crcs;
  size_t at = 0;
  for (size_t i = 0; i < memory.tensors(unit).size(); ++i) {
    const size_t elements = memory.tensors(unit)[i].elements();
    crcs[i] = crc_of(memory.parameters(unit).subspan(at, elements));
    at += elements;
  }
  return crcs;
}

// The name of a tensor, which the owners know, on all ranks of their replicas, and so on all ranks.
Result<std::string> name_for_all(const Layout& layout, int unit, size_t tensor, UnitMemory& memory,
                                 Messenger& messenger) {
  const int replica = layout.position_of(messenger.rank()).replica;
  const int owner = layout.owner_of(unit, replica);
  // A character a number, as the ends of messages have one length.
  std::vector<int64_t> characters(kMostNameBytes, 0);
  if (messenger.rank() == owner) {
    const std::string& name = memory.tensors(unit)[tensor].name;
    std::copy_n(name.begin(), std::min(name.size(), kMostNameBytes), characters.begin());
  }
  HDT_RETURN_IF_ERROR(messenger.broadcast_in_replica(layout.position_of(owner).stage, characters));
  characters.erase(std::ranges::find(characters, 0), characters.end());
  return std::string(characters.begin(), characters.end());
}

}  // namespace

Result<std::optional<WeightDifference>> find_weight_difference(const Layout& layout, UnitMemory& memory,
                                                               Messenger& messenger) {
  // By unit, the tied one first.
  std::vector<std::optional<uint32_t>> units(layout.num_units() - kTiedUnit);
  for (const int unit : memory.units()) units[unit - kTiedUnit] = crc_of(memory.parameters(unit));
  const Result<std::optional<size_t>> unit = first_difference(units, messenger);
  if (!unit.is_ok()) return unit.status();
  if (!unit.value()) return std::optional<WeightDifference>();

  const int number = static_cast<int>(*unit.value()) + kTiedUnit;
  const Result<std::vector<std::optional<uint32_t>>> tensors = crcs_of_tensors(number, memory, messenger);
  if (!tensors.is_ok()) return tensors.status();
  const Result<std::optional<size_t>> tensor = first_difference(tensors.value(), messenger);
  if (!tensor.is_ok()) return tensor.status();
  // The parameters do not change meanwhile, so a unit that differs has a tensor that does.
  if (!tensor.value())
    return Status(Code::kInternal, "weight check: a unit differs, but none of its tensors");

  WeightDifference found;
  found.other = layout.owner_of(number, 0);
  const std::optional<uint32_t> mine = tensors.value()[*tensor.value()];
  double expected = messenger.rank() == found.other ? *mine : 0;
  HDT_RETURN_IF_ERROR(messenger.sum_over_world({&expected, 1}));
  const Result<int> rank = lowest_rank_with(mine && *mine != expected, messenger);
  if (!rank.is_ok()) return rank.status();
  found.rank = rank.value();
  Result<std::string> name = name_for_all(layout, number, *tensor.value(), memory, messenger);
  if (!name.is_ok()) return name.status();
  found.tensor = name.take();
  return std::optional(found);
}

}  // namespace hdt::training
