// pipeline_check.cc: plays pipeline schedules against each other. Stages take turns: each goes on until
// its next step is a receive whose message is not there. If none can go on, either all are done or some
// stage waits for ever. As sends never wait and messages are received in order, every real timing ends
// in the same way.
#include <fmt/format.h>

#include <deque>
#include <map>
#include <string>

#include "training/engine/pipeline_schedule.h"

namespace hdt::training {
namespace {

// One play of all schedules.
class Player {
 public:
  Player(const std::vector<std::vector<PipelineStep>>& schedules, int micro_batches,
         const std::vector<int>& in_flight, int chunks)
      : schedules_(schedules),
        micro_batches_(micro_batches),
        chunks_(chunks),
        in_flight_(in_flight),
        stages_(schedules.size()) {
    for (Stage& stage : stages_) stage.progress.resize(static_cast<size_t>(chunks) * micro_batches);
  }

  // Runs until nothing moves, then looks for what was left undone.
  Status play() {
    bool moved = true;
    while (moved) {
      moved = false;
      // Every stage in turn goes as far as it can.
      for (size_t stage = 0; stage < stages_.size(); ++stage) {
        while (stages_[stage].next < schedules_[stage].size() && !blocked(stage)) {
          HDT_RETURN_IF_ERROR(take(stage));
          moved = true;
        }
      }
    }
    for (size_t stage = 0; stage < stages_.size(); ++stage) {
      // Nothing moves any more, so a stage with steps left waits for a message that will never come.
      if (stages_[stage].next < schedules_[stage].size()) return failure(stage, "waits for ever");
      for (int i = 0; i < chunks_ * micro_batches_; ++i) {
        const Progress& progress = stages_[stage].progress[i];
        if (progress.backward && progress.weights) continue;
        const int micro_batch = i % micro_batches_;
        const char* what = progress.backward ? "has no gradient of weights" : "was not run backward";
        return {Code::kInternal, fmt::format("stage {}: micro-batch {}{} {}", stage, micro_batch,
                                             of_chunk(i / micro_batches_), what)};
      }
      for (const auto& [sender, waiting] : stages_[stage].messages) {
        if (!waiting.empty())
          return {Code::kInternal, fmt::format("stage {}: a message to it was not received", stage)};
      }
    }
    return Status::ok();
  }

 private:
  // The steps that were taken for one micro-batch in one chunk. `backward` is set by either form of it;
  // `weights` by the full one or by the second half.
  struct Progress {
    bool activation = false, forward = false, activation_sent = false;
    bool gradient = false, backward = false, weights = false, gradient_sent = false;
  };
  // The contents of a message.
  struct Part {
    int chunk = 0;
    int micro_batch = 0;
    bool is_gradient = false;
    bool operator==(const Part&) const = default;
  };
  // The state of one stage.
  struct Stage {
    size_t next = 0;  // step of its schedule
    int in_flight = 0;
    std::vector<Progress> progress;  // by chunk and micro-batch
    // Messages to this stage, in order, by their sender. With two stages and several chunks the neighbours
    // are one stage, so activations and gradients come in one order.
    std::map<size_t, std::deque<Part>> messages;
  };

  // The stage's next step.
  PipelineStep step(size_t stage) const { return schedules_[stage][stages_[stage].next]; }

  std::string of_chunk(int chunk) const { return chunks_ == 1 ? "" : fmt::format(" of chunk {}", chunk); }

  Status failure(size_t stage, const std::string& what) const {
    return {Code::kInternal,
            fmt::format("stage {}, step {}, micro-batch {}{}: {}", stage, stages_[stage].next,
                        step(stage).micro_batch, of_chunk(step(stage).chunk), what)};
  }

  // The neighbours: the last stage's chunk is followed by the first stage's next one.
  size_t before(size_t stage) const { return (stage + stages_.size() - 1) % stages_.size(); }
  size_t behind(size_t stage) const { return (stage + 1) % stages_.size(); }

  // True if the next step is a receive and no message is there.
  bool blocked(size_t stage) {
    const PipelineAction action = step(stage).action;
    return (action == PipelineAction::kReceiveActivation && stages_[stage].messages[before(stage)].empty()) ||
           (action == PipelineAction::kReceiveGradient && stages_[stage].messages[behind(stage)].empty());
  }

  // Executes the next step of a stage, or says what is wrong with it.
  Status take(size_t index) {
    Stage& stage = stages_[index];
    const PipelineStep now = step(index);
    if (now.micro_batch < 0 || now.micro_batch >= micro_batches_)
      return failure(index, "no such micro-batch");
    if (now.chunk < 0 || now.chunk >= chunks_) return failure(index, "no such chunk");
    // The ends of the whole pipeline, whose chunks follow one another: after the last stage comes the
    // first stage's next chunk.
    const bool first = index == 0 && now.chunk == 0;
    const bool last = index + 1 == stages_.size() && now.chunk + 1 == chunks_;
    const bool to_next_chunk = index + 1 == stages_.size();
    const bool from_chunk_before = index == 0;
    const Part own{now.chunk, now.micro_batch, now.action == PipelineAction::kReceiveGradient};
    std::deque<Part>& from_before = stage.messages[before(index)];
    std::deque<Part>& from_behind = stage.messages[behind(index)];
    Progress& progress = stage.progress[static_cast<size_t>(now.chunk) * micro_batches_ + now.micro_batch];
    switch (now.action) {
      // Not blocked, so a message is there; messages of a pair come in order, so the first one must be
      // its own.
      case PipelineAction::kReceiveActivation:
        if (first) return failure(index, "the first stage receives no activation");
        if (from_before.front() != own) return failure(index, "receives another's activation");
        from_before.pop_front();
        progress.activation = true;
        break;
      // Each case checks what must have been done before, then notes what is done now.
      case PipelineAction::kForward:
        if (progress.forward) return failure(index, "forward twice");
        if (!first && !progress.activation) return failure(index, "forward without its activation");
        if (++stage.in_flight > in_flight_[index]) return failure(index, "more in flight than announced");
        progress.forward = true;
        break;
      case PipelineAction::kSendActivation:
        if (last) return failure(index, "the last stage sends no activation");
        if (!progress.forward || progress.activation_sent)
          return failure(index, "sends an activation out of turn");
        progress.activation_sent = true;
        stages_[behind(index)].messages[index].push_back(
            {now.chunk + (to_next_chunk ? 1 : 0), now.micro_batch, false});
        break;
      case PipelineAction::kReceiveGradient:
        if (last) return failure(index, "the last stage receives no gradient");
        if (from_behind.front() != own) return failure(index, "receives another's gradient");
        from_behind.pop_front();
        progress.gradient = true;
        break;
      case PipelineAction::kBackward:
        if (!progress.forward || progress.backward) return failure(index, "backward out of turn");
        if (!last && !progress.gradient) return failure(index, "backward without its gradient");
        progress.backward = progress.weights = true;
        --stage.in_flight;
        break;
      case PipelineAction::kInputGradient:
        if (!progress.forward || progress.backward) return failure(index, "backward out of turn");
        if (!last && !progress.gradient) return failure(index, "backward without its gradient");
        progress.backward = true;
        break;
      case PipelineAction::kWeightGradient:
        if (!progress.backward || progress.weights) return failure(index, "gradient of weights out of turn");
        progress.weights = true;
        --stage.in_flight;
        break;
      case PipelineAction::kSendGradient:
        if (first) return failure(index, "the first stage sends no gradient");
        if (!progress.backward || progress.gradient_sent)
          return failure(index, "sends a gradient out of turn");
        progress.gradient_sent = true;
        stages_[before(index)].messages[index].push_back(
            {now.chunk - (from_chunk_before ? 1 : 0), now.micro_batch, true});
        break;
    }
    ++stage.next;
    return Status::ok();
  }

  const std::vector<std::vector<PipelineStep>>& schedules_;
  const int micro_batches_;
  const int chunks_;
  const std::vector<int>& in_flight_;
  std::vector<Stage> stages_;
};

}  // namespace

Status check_pipeline(const std::vector<std::vector<PipelineStep>>& schedules, int micro_batches,
                      const std::vector<int>& in_flight, int chunks) {
  return Player(schedules, micro_batches, in_flight, chunks).play();
}

}  // namespace hdt::training
