// evaluating.cc: one evaluator for both parts. An evaluation is at most one pass over its part, so that no
// sample counts twice, unless the part has less than a batch.
#include "tools/hdt-train/evaluating.h"

#include <algorithm>

namespace hdt::tools {

using training::DataPart;

Result<std::unique_ptr<Evaluating>> Evaluating::start(const TrainFlags& flags, const TokenInput& input,
                                                      const training::Layout& layout,
                                                      const training::ModelChunks& chunks,
                                                      training::Trainer& trainer,
                                                      training::Messenger& messenger, Reporter* reporter) {
  std::unique_ptr<Evaluating> evaluating(new Evaluating(flags, trainer, reporter));
  const int64_t batch_size = layout.global_batch_size();
  for (const DataPart name : {DataPart::kValidation, DataPart::kTest}) {
    if (flags.split.weight(name) == 0 || flags.eval_iters == 0) continue;
    Result<training::BlendedSampler> sampler = make_sampler(flags, input, name, batch_size);
    if (!sampler.is_ok()) return sampler.status();
    const auto whole = static_cast<int64_t>(sampler.value().samples_of_one_pass()) / batch_size;
    const int64_t batches = std::min(flags.eval_iters, std::max<int64_t>(whole, 1));
    (name == DataPart::kTest ? evaluating->test_ : evaluating->validation_)
        .emplace(Part{sampler.take(), batches});
  }
  if (!evaluating->validation_ && !evaluating->test_) return evaluating;
  Result<std::unique_ptr<training::Evaluator>> evaluator =
      training::Evaluator::create(layout, chunks, messenger);
  if (!evaluator.is_ok()) return evaluator.status();
  evaluating->evaluator_ = evaluator.take();
  return evaluating;
}

Result<bool> Evaluating::step_done(int64_t done) {
  if (!validation_ || done % flags_.eval_interval != 0) return false;
  HDT_RETURN_IF_ERROR(evaluate(DataPart::kValidation, *validation_, done));
  return true;
}

Result<bool> Evaluating::finish(int64_t done) {
  if (validation_ && evaluated_ != done)
    HDT_RETURN_IF_ERROR(evaluate(DataPart::kValidation, *validation_, done));
  if (test_) HDT_RETURN_IF_ERROR(evaluate(DataPart::kTest, *test_, done));
  return validation_ || test_;
}

Status Evaluating::evaluate(DataPart name, const Part& part, int64_t done) {
  // The parameters that other ranks have updated may still be on their way.
  HDT_RETURN_IF_ERROR(trainer_.settle());
  const Result<training::EvaluationResult> result =
      evaluator_->evaluate(part.batches, [&](int64_t batch, int64_t index, std::span<int64_t> tokens) {
        part.sampler.sample(static_cast<uint64_t>(batch), index, tokens);
      });
  if (!result.is_ok()) return result.status();
  if (name == DataPart::kValidation) evaluated_ = done;
  return reporter_ != nullptr ? reporter_->evaluated(name, done, result.value()) : Status::ok();
}

}  // namespace hdt::tools
