// layout_table.cc: layouts by hand and by chance.
#include "tests/training/engine/layout_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdlib>

namespace hdt::training::testing {
namespace {

std::string described(const std::vector<Replica>& replicas) {
  std::string text;
  for (const Replica& replica : replicas) {
    text += fmt::format("{}[{}] {} x {}", text.empty() ? "" : ", ", fmt::join(replica.stage_layers, " "),
                        replica.num_micro_batches, replica.micro_batch_size);
    if (replica.chunks > 1) text += fmt::format(" in {} chunks", replica.chunks);
  }
  return text;
}

int between(int least, int most, std::mt19937& random) {
  return std::uniform_int_distribution<int>(least, most)(random);
}

}  // namespace

// Each row once in each order of ranks. A replica: layers of its stages, samples of a micro-batch, number of
// micro-batches.
std::vector<NamedLayout> layout_table() {
  const std::vector<std::pair<const char*, std::vector<Replica>>> rows = {
      {"one pipeline", {{{2, 2}, 2, 3}}},
      {"two alike", {{{4}, 2, 2}, {{4}, 2, 2}}},
      {"three alike, of two stages", {{{2, 2}, 1, 3}, {{2, 2}, 1, 3}, {{2, 2}, 1, 3}}},
      {"two to one by counts", {{{4}, 2, 4}, {{4}, 2, 2}}},
      {"two to one by sizes", {{{4}, 4, 2}, {{4}, 2, 2}}},
      {"two to one by counts, of two stages", {{{3, 1}, 2, 4}, {{3, 1}, 2, 2}}},
      {"two to one, split otherwise", {{{3, 1}, 2, 4}, {{2, 2}, 2, 2}}},
      {"two to one, in stages, too", {{{2, 2}, 2, 4}, {{4}, 2, 2}}},
      {"three to two to one by counts", {{{4}, 1, 6}, {{4}, 1, 4}, {{4}, 1, 2}}},
      {"three to two to one by sizes", {{{4}, 3, 2}, {{4}, 2, 2}, {{4}, 1, 2}}},
      {"three to two to one by both", {{{4}, 3, 1}, {{4}, 1, 2}, {{4}, 1, 1}}},
      {"three to two to one in stages", {{{1, 1, 2}, 1, 3}, {{2, 2}, 1, 2}, {{4}, 1, 1}}},
      {"three to two to one in layers", {{{3, 1}, 2, 3}, {{2, 2}, 2, 2}, {{1, 3}, 2, 1}}},
      {"numbers of stages differ", {{{1, 1, 1, 1}, 1, 7}, {{4}, 5, 1}, {{1, 3}, 2, 2}}},
      {"more stages than micro-batches", {{{1, 1, 1, 1}, 3, 2}, {{2, 2}, 1, 1}}},
      {"embedding and head alone", {{{0, 2, 2, 0}, 2, 4}, {{0, 4}, 1, 3}, {{4, 0}, 1, 2}, {{4}, 2, 1}}},
      {"sizes against counts", {{{1, 3}, 1, 6}, {{2, 2}, 6, 1}}},
  };
  std::vector<NamedLayout> table;
  for (const auto& [name, replicas] : rows) {
    for (const RankOrder order : {RankOrder::kTpDpPp, RankOrder::kTpPpDp})
      table.push_back({fmt::format("{}: {}", name, described(replicas)), Layout(4, replicas, order)});
  }
  return table;
}

std::vector<NamedLayout> random_layouts(int count, std::mt19937& random) {
  std::vector<NamedLayout> layouts;
  while (static_cast<int>(layouts.size()) < count) {
    std::vector<Replica> replicas(between(1, 4, random));
    for (Replica& replica : replicas) {
      for (int layers = 4; layers > 0; layers -= replica.stage_layers.back())
        replica.stage_layers.push_back(between(1, layers, random));
      replica.micro_batch_size = between(1, 3, random);
      replica.num_micro_batches = between(1, 4, random);
    }
    const RankOrder order = between(0, 1, random) == 0 ? RankOrder::kTpDpPp : RankOrder::kTpPpDp;
    layouts.push_back({fmt::format("random: {}", described(replicas)), Layout(4, replicas, order)});
  }
  return layouts;
}

ShardOptions random_shards(const Layout& layout, std::mt19937& random) {
  ShardOptions options{true, {}};
  do {
    options.weights.clear();
    for (int rank = 0; rank < layout.world_size(); ++rank)
      options.weights.push_back(between(0, 4, random) == 0 ? 0 : between(1, 1000, random) / 100.0);
  } while (!check_shard_options(layout, options).is_ok());
  return options;
}

unsigned test_seed() {
  const char* const given = std::getenv("HDT_TEST_SEED");
  return given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device()();
}

Layout one_process(const Layout& layout) {
  const Layout one(layout.num_layers(),
                   {{{layout.num_layers()}, static_cast<int>(layout.global_batch_size()), 1}},
                   RankOrder::kTpDpPp);
  return layout.has_tied_unit() ? one.with_tied_unit() : one;
}

}  // namespace hdt::training::testing
