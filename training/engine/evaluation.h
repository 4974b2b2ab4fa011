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
#include "training/engine/model_chunks.h"

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
// Where a stage has several chunks of the model, as many micro-batches as there are stages go through one
// chunk, then through the next, as in interleaved 1F1B. Two micro-batches of a chunk have buffers: while one
// is computed, the input of the next one arrives and the output of the one before leaves. A buffer is written
// again only after what was sent from it is gone.
class Evaluator {
 public:
  // Fills `tokens` with sample `index` (0 .. global_batch_size - 1) of batch `batch`; the same on every rank.
  using BatchReader = std::function<void(int64_t batch, int64_t index, std::span<int64_t> tokens)>;

  // Allocates the buffers. `chunks` must have their memory already (Trainer::create() binds it). Computes,
  // messenger and layout must outlive the evaluator. Fails if memory cannot be allocated.
  static Result<std::unique_ptr<Evaluator>> create(const Layout& layout, const ModelChunks& chunks,
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

  struct Chunk {
    StageCompute* compute = nullptr;
    bool first = false;  // whether it is the first virtual stage of the replica,
    bool last = false;   // or the last one
    std::vector<Slot> slots;
  };

  Evaluator(const Layout& layout, const ModelChunks& chunks, Messenger& messenger);
  Status allocate(Chunk& chunk);
  // The k-th forward of a batch.
  Chunk& chunk_of(int k);
  int micro_batch_of(int k) const;
  Slot& slot_of(int k);
  // Posts the receive of the input of the k-th forward, if there is a virtual stage before.
  Status post_receive(int k);
  // Computes the k-th forward, whose input is there, and sends on.
  Result<LossSum> forward(int k, int64_t batch, const BatchReader& reader);
  // Runs this replica's micro-batches of one batch, through all chunks of this rank.
  Result<LossSum> run_batch(int64_t batch, const BatchReader& reader);

  Messenger& messenger_;
  Replica replica_;
  int stage_;
  int64_t first_sample_;  // the replica's, in each batch
  std::vector<Chunk> chunks_;
};

}  // namespace hdt::training
