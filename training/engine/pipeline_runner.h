// pipeline_runner.h: runs a stage's schedule of one training step: it computes, sends and receives.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/compute.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"
#include "training/engine/model_chunks.h"
#include "training/engine/sample_reader.h"
#include "training/engine/schedules.h"
#include "training/engine/step_times.h"

namespace hdt::training {

// One rank's pipeline. The trainer owns it and calls it on its own thread. Messages overlap with computing:
// a send completes in the background, and the next receives of the schedule are posted before their turn, in
// its order, each as soon as its buffer is free.
//
// A stage with several chunks of the model has a compute and buffers for each.
//
// Buffers are kept per chunk and slot (micro-batch modulo slots): the micro-batches in flight in a chunk are
// consecutive in every schedule. There are kSpareSlots slots more than micro-batches in flight, for receives
// that are posted early and for sends that go on. A buffer is written again only after what was sent from it
// is gone, and after the last step that reads it.
class PipelineRunner {
 public:
  // Waits until the parameters of a unit of the stage have come (MicroBatch::unit_needed).
  using UnitNeeded = std::function<Status(int unit)>;

  // Allocates the buffers. Computes and messenger must outlive the runner. All stages of a replica must have
  // the same schedule. kInvalidArgument: it needs a backward in two parts, and the compute has none; or it
  // cannot be run with so many chunks (check_chunks()).
  static Result<PipelineRunner> create(const Layout& layout, Position position, ScheduleKind schedule,
                                       const ModelChunks& chunks, Messenger& messenger);

  // Runs step number `step` and returns the summed loss of this replica on its last stage, zeros elsewhere.
  // `unit_done` is called during the last backward, when the gradients of a unit are complete for the step.
  // `unit_needed` is called with each unit in the first forward of its chunk, before its parameters are read;
  // an error of it ends the step. kInternal: a compute has read the parameters of a unit without asking.
  Result<LossSum> run(
      int64_t step, const SampleReader& samples, const StageCompute::UnitDone& unit_done,
      const UnitNeeded& unit_needed = [](int) { return Status::ok(); });
  // The loss factor of all micro-batches (MicroBatch) from the next run() on; 1 at first.
  void set_loss_factor(double factor) { loss_factor_ = factor; }
  // How long run() has computed, waited for stages (pp) and waited in `unit_needed` (dp), since the runner
  // was made.
  const StepTimes& times() const { return times_; }
  // Ends the messages under way: the replica's group fails (Operation). The buffers are gone then.
  void give_up() {
    receives_.clear();
    for (Chunk& chunk : chunks_) chunk.slots.clear();
  }

 private:
  // One to receive into while the stage computes, and one that the message before may still occupy.
  static constexpr int kSpareSlots = 2;
  // The maximum number of receives that are posted early: some of each neighbour, as those of a schedule
  // alternate between the two.
  static constexpr size_t kMostReceives = 6;

  // The buffers of one micro-batch in flight. Those of a neighbour that the stage does not have are empty.
  struct Slot {
    TypedMemory input, output, output_gradient, input_gradient;
    std::vector<int64_t> samples;            // where the stage reads them
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
  // Fills to_receive_ once the slots are there.
  void plan_receives();
  // Posts the next receives whose buffers are free when step `index` of the schedule is to be executed.
  Status post_receives(size_t index);
  // Waits for the receive of step `index`.
  Status finish_receive(size_t index);
  // What run() was called with, and the sum of its losses.
  struct Run {
    const SampleReader& samples;
    const StageCompute::UnitDone& unit_done;
    const UnitNeeded& unit_needed;
    LossSum loss = {};
  };
  // Executes step `index` of the schedule.
  Status take(size_t index, Run& run);
  // As settle(), with its time counted.
  Status wait_for(Pending& operation);
  // Sends to the stage `distance` away in the ring of the stages; `sent` keeps the operation.
  Status send(int distance, ConstTypedSpan values, Pending& sent);
  // The neighbour at that distance. The last stage's next one is the first stage with its next chunk.
  int neighbour(int distance) const {
    return (position_.stage + distance + replica_.stages()) % replica_.stages();
  }
  // The forward step of a micro-batch.
  Status forward(PipelineStep step, Chunk& chunk, Slot& slot, Run& run);
  // The replica's micro-batches are consecutive parts of its range of the global batch.
  int64_t first_sample_of(int micro_batch) const {
    return first_sample_ + int64_t{micro_batch} * replica_.micro_batch_size;
  }
  static int slot_index(const Chunk& chunk, int micro_batch) {
    return micro_batch % static_cast<int>(chunk.slots.size());
  }
  static Slot& slot_of(Chunk& chunk, int micro_batch) {
    return chunk.slots[static_cast<size_t>(slot_index(chunk, micro_batch))];
  }

  Position position_;
  // The replica's first sample in the global batch.
  int64_t first_sample_ = 0;
  int64_t step_ = 0;  // the one under way
  double loss_factor_ = 1;
  Replica replica_;
  Messenger* messenger_;
  std::vector<PipelineStep> schedule_;  // of every step
  std::vector<Chunk> chunks_;
  // The receives of the schedule, in order: the step, and the first step at which the buffer is free.
  struct Receive {
    size_t step = 0;
    size_t free_at = 0;
  };
  std::vector<Receive> to_receive_;
  size_t next_receive_ = 0;       // of to_receive_: the first one that is not posted
  std::deque<Pending> receives_;  // those that are posted and not finished, in order
  StepTimes times_;               // compute, pp and dp
};

}  // namespace hdt::training
