// pipeline_runner.h: runs a stage's schedule of one training step: it computes, sends and receives.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/compute.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"
#include "training/engine/model_chunks.h"
#include "training/engine/schedules.h"

namespace hdt::training {

// Fills `tokens` (sequence_length + 1 of them) with sample `index` of the global batch of the step under way.
using SampleReader = std::function<void(int64_t index, std::span<int64_t> tokens)>;

// One rank's pipeline. The trainer owns it and calls it on its own thread. Messages overlap with computing:
// a send completes in the background, and the next receive of the schedule is posted before its turn.
//
// A stage with several chunks of the model has a compute and buffers for each.
//
// Buffers are kept per chunk and slot (micro-batch modulo slots): the micro-batches in flight in a chunk are
// consecutive in every schedule. There is one slot more than micro-batches in flight, for the receive that is
// posted early. A buffer is written again only after what was sent from it is gone.
class PipelineRunner {
 public:
  // Allocates the buffers. Computes and messenger must outlive the runner. All stages of a replica must have
  // the same schedule. kInvalidArgument: it needs a backward in two parts, and the compute has none; or it
  // cannot be run with so many chunks (check_chunks()).
  static Result<PipelineRunner> create(const Layout& layout, Position position, ScheduleKind schedule,
                                       const ModelChunks& chunks, Messenger& messenger);

  // Runs one step and returns the summed loss of this replica on its last stage, zeros elsewhere. `unit_done`
  // is called during the last backward, when the gradients of a unit are complete for the step.
  // `before_forward` is called once, before the first forward, when the stage's input has come; an error of
  // it ends the step.
  Result<LossSum> run(
      const SampleReader& samples, const StageCompute::UnitDone& unit_done,
      const std::function<Status()>& before_forward = [] { return Status::ok(); });
  // Ends the messages under way: the replica's group fails (Operation). The buffers are gone then.
  void give_up() {
    receive_.reset();
    for (Chunk& chunk : chunks_) chunk.slots.clear();
  }

 private:
  // The buffers of one micro-batch in flight. Those of a neighbour that the stage does not have are empty.
  struct Slot {
    TypedMemory input, output, output_gradient, input_gradient;
    std::vector<int64_t> samples;            // of the first and the last stage
    Pending activation_sent, gradient_sent;  // under way from `output` and from `input_gradient`
  };

  // One range of layers of the stage.
  struct Chunk {
    StageCompute* compute = nullptr;
    bool first = false;  // whether it is the first virtual stage of the replica,
    bool last = false;   // or the last one
    // The step of the schedule after which nothing more is added to its gradients: its last backward, or the
    // last second part of one.
    size_t last_gradient = 0;
    std::vector<Slot> slots;
  };

  PipelineRunner(const Layout& layout, Position position, ScheduleKind schedule, const ModelChunks& chunks,
                 Messenger& messenger);
  Status allocate();
  Status allocate(Chunk& chunk, int in_flight);
  // Posts the first receive at or after step `from` of the schedule.
  Status post_next_receive(size_t from);
  // Executes step `index` of the schedule.
  Status take(size_t index, const SampleReader& samples, const StageCompute::UnitDone& unit_done,
              LossSum& loss);
  // Sends to the stage `distance` away in the ring of the stages; `sent` keeps the operation.
  Status send(int distance, ConstTypedSpan values, Pending& sent);
  // The neighbour at that distance. The last stage's next one is the first stage with its next chunk.
  int neighbour(int distance) const {
    return (position_.stage + distance + replica_.stages()) % replica_.stages();
  }
  // The forward step of a micro-batch.
  Status forward(PipelineStep step, Chunk& chunk, Slot& slot, const SampleReader& samples, LossSum& loss);
  void read_samples(int micro_batch, const SampleReader& samples, Slot& slot);
  static int slot_index(const Chunk& chunk, int micro_batch) {
    return micro_batch % static_cast<int>(chunk.slots.size());
  }
  static Slot& slot_of(Chunk& chunk, int micro_batch) {
    return chunk.slots[static_cast<size_t>(slot_index(chunk, micro_batch))];
  }

  Position position_;
  // The replica's first sample in the global batch.
  int64_t first_sample_ = 0;
  Replica replica_;
  Messenger* messenger_;
  std::vector<PipelineStep> schedule_;  // of every step
  // The first forward of the schedule.
  size_t first_forward_ = 0;
  std::vector<Chunk> chunks_;
  Pending receive_;          // posted early
  size_t receive_step_ = 0;  // the step that it is for
};

}  // namespace hdt::training
