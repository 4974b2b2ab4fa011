// evaluation.h: the loss of the model on samples that it does not learn from. Forward only: nothing is
// reduced, and no parameter changes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "training/engine/compute.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"

namespace hdt::training {

// The result of an evaluation, the same on all ranks.
struct EvaluationResult {
  double loss = 0;  // mean over the tokens of all samples
  int64_t tokens = 0;
};

// One rank's part of evaluations. Each batch is split over replicas and micro-batches as a training step is,
// and every token counts the same, so the result is that of one process, to rounding. The program owns it
// and calls it on the thread of its trainer, between two steps: messages of both go in one order.
//
// Two micro-batches have buffers: while one is computed, the input of the next one arrives and the output of
// the one before leaves. A buffer is written again only after what was sent from it is gone.
class Evaluator {
 public:
  // Fills `tokens` with sample `index` (0 .. global_batch_size - 1) of batch `batch`; the same on every rank.
  using BatchReader = std::function<void(int64_t batch, int64_t index, std::span<int64_t> tokens)>;

  // Allocates the buffers. `compute` must have its memory already (Trainer::create() binds it). Compute,
  // messenger and layout must outlive the evaluator. Fails if memory cannot be allocated.
  static Result<std::unique_ptr<Evaluator>> create(const Layout& layout, StageCompute& compute,
                                                   Messenger& messenger);

  // The mean loss over batches 0 .. batches - 1. All ranks call it with the same number, 1 or more. A loss
  // that is not finite is returned as it is. After a failure the run is over.
  Result<EvaluationResult> evaluate(int64_t batches, const BatchReader& reader);

 private:
  struct Slot {
    TypedMemory input, output;  // empty at the ends of the pipeline
    std::vector<int64_t> samples;
    Pending received, sent;  // under way into `input` and from `output`
  };

  Evaluator(const Layout& layout, StageCompute& compute, Messenger& messenger);
  Status allocate();
  // Posts the receive of a micro-batch's input, if there is a stage before.
  Status post_receive(Slot& slot);
  // Runs this replica's micro-batches of one batch.
  Result<LossSum> run_batch(int64_t batch, const BatchReader& reader);

  StageCompute& compute_;
  Messenger& messenger_;
  Replica replica_;
  int stage_;
  int64_t first_sample_;  // the replica's, in each batch
  bool first_ = false;
  bool last_ = false;
  std::vector<Slot> slots_;
};

}  // namespace hdt::training
