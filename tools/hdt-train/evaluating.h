// evaluating.h: when a run measures its loss on data that it does not train on (--split, --eval-interval,
// --eval-iters).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/status.h"
#include "tools/hdt-train/flags.h"
#include "tools/hdt-train/reporter.h"
#include "tools/hdt-train/token_input.h"
#include "training/data/blended_sampler.h"
#include "training/engine/evaluation.h"
#include "training/engine/layout.h"
#include "training/engine/messenger.h"
#include "training/engine/trainer.h"

namespace hdt::tools {

// One rank's part, used on its training thread between two steps. All ranks evaluate at the same steps, as
// those follow from the flags. Each evaluation of a part sees the same samples, whatever the step.
class Evaluating {
 public:
  // To be called after the trainer is made. `reporter` is null on all ranks but 0. Everything given must
  // outlive the object. kInvalidArgument: a part is too short for one sample.
  static Result<std::unique_ptr<Evaluating>> start(const TrainFlags& flags, const TokenInput& input,
                                                   const training::Layout& layout,
                                                   const training::ModelChunks& chunks,
                                                   training::Trainer& trainer, training::Messenger& messenger,
                                                   Reporter* reporter);

  // To be called after each step, on all ranks. Returns whether there was an evaluation, as finish() does.
  // Both throw ForeignToken.
  Result<bool> step_done(int64_t done);
  // The end of a run that was not interrupted: the validation loss, unless that of step `done` is known, and
  // the test loss.
  Result<bool> finish(int64_t done);

 private:
  // The samples of a part, and how many batches of them an evaluation takes.
  struct Part {
    training::BlendedSampler sampler;
    int64_t batches = 0;
  };
  Evaluating(const TrainFlags& flags, training::Trainer& trainer, Reporter* reporter)
      : flags_(flags), trainer_(trainer), reporter_(reporter) {}
  Status evaluate(training::DataPart name, const Part& part, int64_t done);

  const TrainFlags& flags_;
  training::Trainer& trainer_;
  Reporter* reporter_;
  std::unique_ptr<training::Evaluator> evaluator_;  // null if neither part is there
  std::optional<Part> validation_;
  std::optional<Part> test_;
  int64_t evaluated_ = -1;  // the step of the last validation loss
};

}  // namespace hdt::tools
