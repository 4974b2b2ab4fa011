// interleaved_search.cc: cuts the stages of a plan into chunks, shares micro-batches out, plays and improves.
#include "training/plan/search/interleaved_search.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <tuple>
#include <utility>

#include "training/plan/predict/predictor.h"

namespace hdt::plan {
namespace {

// A plan that is slower than the best step by this factor is not worth improving.
constexpr double kWorthImproving = 1.1;

// `layers` in as equal chunks as possible. The first ones are the larger ones, as the last chunk of the last
// stage has the head in addition.
std::vector<int> equal_chunks(int layers, int chunks) {
  std::vector<int> cut;
  for (int chunk = 0; chunk < chunks; ++chunk)
    cut.push_back(layers / chunks + (chunk < layers % chunks ? 1 : 0));
  return cut;
}

// Gives each stage `least` layers or more, which come from the stages that have most. False if there are
// too few.
bool give_each(std::vector<Stage>& stages, int least) {
  int layers = 0;
  for (const Stage& stage : stages) layers += stage.layers;
  if (layers < least * static_cast<int>(stages.size())) return false;
  for (Stage& stage : stages) {
    for (; stage.layers < least; ++stage.layers)
      --std::ranges::max_element(stages, {}, &Stage::layers)->layers;
  }
  return true;
}

}  // namespace

InterleavedSearch::InterleavedSearch(const PredictionInputs& inputs, const SearchOptions& options,
                                     int64_t most_plays, SearchState& state)
    : inputs_(inputs), options_(options), most_plays_(most_plays), state_(state) {
  for (const Node& node : inputs.cluster.nodes) nodes_.emplace(node.name, &node);
}

bool InterleavedSearch::alike(const Replica& one, const Replica& other) const {
  if (one.micro_batch_size != other.micro_batch_size || one.stages.size() != other.stages.size())
    return false;
  return std::ranges::equal(one.stages, other.stages, [&](const Stage& a, const Stage& b) {
    const Node& here = node_of(a);
    const Node& there = node_of(b);
    return a.layers == b.layers && a.tensor_parallel == b.tensor_parallel && same_kind(here, there) &&
           here.memory_bytes == there.memory_bytes;
  });
}

bool InterleavedSearch::try_base(const Plan& base) {
  for (int chunks = kFewestChunks; chunks <= kMostChunks; ++chunks) {
    if (plays_ == most_plays_) return false;
    std::optional<Candidate> candidate = cut(base, chunks);
    if (!candidate || !share_out(*candidate)) continue;
    const auto seconds = play(*candidate, kWorthImproving * state_.best_seconds);
    Best& best = best_[chunks];
    if (!seconds || *seconds >= best.seconds) continue;
    best = {std::move(*candidate), *seconds};
  }
  return true;
}

std::optional<InterleavedSearch::Candidate> InterleavedSearch::cut(const Plan& base, int chunks) const {
  Candidate candidate{base, {}, {}};
  bool any = false;
  for (size_t r = 0; r < base.replicas.size(); ++r) {
    const auto known = std::ranges::find_if(candidate.kinds, [&](const Alike& kind) {
      return alike(base.replicas[kind.members.front()], base.replicas[r]);
    });
    if (known != candidate.kinds.end()) {
      known->members.push_back(r);
      continue;
    }
    Alike kind;
    kind.one = base.replicas[r];
    kind.members = {r};
    const bool can_be_cut = kind.one.stages.size() > 1 && give_each(kind.one.stages, chunks);
    for (Stage& stage : kind.one.stages) {
      stage.recomputed_layers = 0;
      stage.attention_only = false;
      if (can_be_cut) stage.chunk_layers = equal_chunks(stage.layers, chunks);
    }
    if (can_be_cut) kind.unit = static_cast<int>(kind.one.stages.size());
    any = any || can_be_cut;
    candidate.kinds.push_back(std::move(kind));
  }
  if (!any) return std::nullopt;
  for (Alike& kind : candidate.kinds) time_kind(base, kind);
  return candidate;
}

// With all activations kept: recomputation makes a stage slower still.
void InterleavedSearch::time_kind(const Plan& base, Alike& kind) const {
  Plan one;
  one.runtime = base.runtime;
  one.replicas = {kind.one};
  const training::Layout layout = one.layout();
  kind.period = 0;
  kind.fill = 0;
  for (int stage = 0; stage < static_cast<int>(kind.one.stages.size()); ++stage) {
    double seconds = 0;
    for (int chunk = 0; chunk < kind.one.chunks(); ++chunk) {
      const StageCost cost = stage_cost(inputs_, one, layout, {0, stage, chunk});
      seconds += cost.forward + cost.backward;
    }
    kind.period = std::max(kind.period, seconds);
    kind.fill += seconds / kind.one.chunks();
  }
}

// As the base has them, if every number is a multiple of what its replica needs. Otherwise each replica
// gets the least that it can take, and each further share goes to the replica that ends first with it.
bool InterleavedSearch::share_out(Candidate& candidate) const {
  const std::vector<Replica>& replicas = candidate.base.replicas;
  std::vector<const Alike*> kind_of(replicas.size());
  for (const Alike& kind : candidate.kinds) {
    for (const size_t member : kind.members) kind_of[member] = &kind;
  }
  bool fits = true;
  candidate.micro_batches.clear();
  for (size_t r = 0; r < replicas.size(); ++r) {
    candidate.micro_batches.push_back(replicas[r].micro_batches);
    fits = fits && replicas[r].micro_batches % kind_of[r]->unit == 0;
  }
  if (fits) return true;
  struct Next {
    double end = 0;  // with one more share
    size_t replica = 0;
    bool operator<(const Next& other) const {
      return std::tie(end, replica) > std::tie(other.end, other.replica);
    }
  };
  std::priority_queue<Next> next;
  int64_t left = options_.global_batch_size;  // samples
  const auto share = [&](size_t r) { return int64_t{replicas[r].micro_batch_size} * kind_of[r]->unit; };
  const auto end = [&](size_t r) {
    return kind_of[r]->fill + (candidate.micro_batches[r] + kind_of[r]->unit) * kind_of[r]->period;
  };
  for (size_t r = 0; r < replicas.size(); ++r) {
    candidate.micro_batches[r] = kind_of[r]->unit;
    left -= share(r);
    next.push({end(r), r});
  }
  while (left > 0 && !next.empty()) {
    const size_t chosen = next.top().replica;
    next.pop();
    if (share(chosen) > left) continue;
    left -= share(chosen);
    candidate.micro_batches[chosen] += kind_of[chosen]->unit;
    next.push({end(chosen), chosen});
  }
  return left == 0;
}

Plan InterleavedSearch::plan_of(const Candidate& candidate) const {
  Plan plan;
  plan.runtime = options_.runtime;
  plan.runtime.schedule = ScheduleKind::kInterleaved;
  plan.replicas = candidate.base.replicas;
  for (const Alike& kind : candidate.kinds) {
    for (const size_t member : kind.members) {
      Replica& replica = plan.replicas[member];
      replica.micro_batches = candidate.micro_batches[member];
      for (size_t stage = 0; stage < replica.stages.size(); ++stage) {
        // All but the node is that of the kind.
        const std::string node = replica.stages[stage].node;
        replica.stages[stage] = kind.one.stages[stage];
        replica.stages[stage].node = node;
      }
    }
  }
  return plan;
}

// A stage never keeps less for more micro-batches, so the member that has most decides for its kind.
bool InterleavedSearch::fit(Candidate& candidate) {
  bool all_fit = true;
  const StateShares shares(inputs_.model.num_units(), candidate.micro_batches.size(),
                           options_.runtime.use_distributed_optimizer);
  for (Alike& kind : candidate.kinds) {
    Plan one;
    one.runtime = options_.runtime;
    one.runtime.schedule = ScheduleKind::kInterleaved;
    one.replicas = {kind.one};
    one.replicas[0].micro_batches = 0;
    for (const size_t member : kind.members)
      one.replicas[0].micro_batches =
          std::max(one.replicas[0].micro_batches, candidate.micro_batches[member]);
    std::vector<int> stages(kind.one.stages.size());
    std::iota(stages.begin(), stages.end(), 0);
    const auto bytes_of = [&](const Plan& plan) {
      std::vector<double> bytes;
      for (const StageMemory& memory : worker_memory(inputs_, plan, shares))
        bytes.push_back(memory.bytes(inputs_));
      return bytes;
    };
    const std::vector<double> bytes = fit_recomputation(inputs_, options_.recompute, stages, bytes_of, one);
    for (size_t s = 0; s < bytes.size(); ++s) {
      const Node& node = node_of(one.replicas[0].stages[s]);
      const double excess = bytes[s] - static_cast<double>(node.memory_bytes);
      if (excess <= 0) continue;
      all_fit = false;
      if (excess >= state_.least_excess) continue;
      state_.least_excess = excess;
      state_.excess_device = node.kind();
    }
    kind.one.stages = one.replicas[0].stages;
  }
  return all_fit;
}

std::optional<double> InterleavedSearch::play(Candidate& candidate, double limit) {
  if (plays_ == most_plays_) return std::nullopt;
  for (const Alike& kind : candidate.kinds) {
    for (const size_t member : kind.members) {
      if (kind.period * candidate.micro_batches[member] >= limit) return std::nullopt;
    }
  }
  if (!fit(candidate)) return std::nullopt;
  ++plays_;
  Plan plan = plan_of(candidate);
  // A plan that cannot run is skipped, as where sends wait for their receivers.
  const auto seconds = predict_seconds(inputs_, plan);
  if (!seconds.is_ok()) return std::nullopt;
  state_.offer(inputs_, std::move(plan), seconds.value());
  return seconds.value();
}

bool InterleavedSearch::move_layer(Alike& kind, int from_stage, int from_chunk, int to_stage, int to_chunk) {
  Stage& from = kind.one.stages[static_cast<size_t>(from_stage)];
  Stage& to = kind.one.stages[static_cast<size_t>(to_stage)];
  if (from.layers_of(from_chunk) == 1) return false;
  --from.chunk_layers[static_cast<size_t>(from_chunk)];
  --from.layers;
  ++to.chunk_layers[static_cast<size_t>(to_chunk)];
  ++to.layers;
  return true;
}

void InterleavedSearch::improve(int most_moves) {
  for (auto& [chunks, best] : best_) {
    if (best.seconds < kWorthImproving * state_.best_seconds)
      improve(best, std::min(most_plays_, plays_ + most_moves));
  }
}

// Hill climbing over all moves, until a round brings nothing.
void InterleavedSearch::improve(Best& best, int64_t until) {
  for (bool better = true; better;) {
    better = false;
    for (size_t k = 0; k < best.candidate.kinds.size(); ++k) {
      const auto stages = static_cast<int>(best.candidate.kinds[k].one.stages.size());
      const int chunks = best.candidate.kinds[k].one.chunks();
      if (chunks == 1) continue;
      const auto try_move = [&](int from_stage, int from_chunk, int to_stage, int to_chunk) {
        if (plays_ >= until) return;
        Candidate moved = best.candidate;
        if (!move_layer(moved.kinds[k], from_stage, from_chunk, to_stage, to_chunk)) return;
        time_kind(moved.base, moved.kinds[k]);
        const auto seconds = play(moved, best.seconds);
        if (!seconds || *seconds >= best.seconds) return;
        best = {std::move(moved), *seconds};
        better = true;
      };
      for (int stage = 0; stage < stages; ++stage) {
        for (int from = 0; from < chunks; ++from) {
          for (int to = 0; to < chunks; ++to) {
            if (from != to) try_move(stage, from, stage, to);
            if (stage > 0) try_move(stage, from, stage - 1, to);
            if (stage + 1 < stages) try_move(stage, from, stage + 1, to);
          }
        }
      }
    }
  }
}

}  // namespace hdt::plan
