// evaluation.cc: micro-batch after micro-batch through the pipeline, all in one direction. Each batch ends
// with a sum over the world. It keeps the ranks together, so that no operation waits longer than for one
// batch.
#include "training/engine/evaluation.h"

#include <array>
#include <utility>

namespace hdt::training {
namespace {

constexpr size_t kSlots = 2;

}  // namespace

Evaluator::Evaluator(const Layout& layout, StageCompute& compute, Messenger& messenger)
    : compute_(compute), messenger_(messenger) {
  const Position position = layout.position_of(messenger.rank());
  replica_ = layout.replica(position.replica);
  stage_ = position.stage;
  first_sample_ = layout.first_sample(position.replica);
  first_ = stage_ == 0;
  last_ = stage_ == replica_.stages() - 1;
}

Result<std::unique_ptr<Evaluator>> Evaluator::create(const Layout& layout, StageCompute& compute,
                                                     Messenger& messenger) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator(layout, compute, messenger));
  HDT_RETURN_IF_ERROR(evaluator->allocate());
  return evaluator;
}

Status Evaluator::allocate() {
  const auto tokens = static_cast<size_t>(replica_.micro_batch_size) * compute_.sequence_length();
  const UnitRange units = compute_.units();
  const size_t input = first_ ? 0 : compute_.activation_elements(units.first - 1, tokens);
  const size_t output = last_ ? 0 : compute_.activation_elements(units.end - 1, tokens);
  slots_.resize(kSlots);
  for (Slot& slot : slots_) {
    for (const auto& [part, elements] : {std::pair{&slot.input, input}, std::pair{&slot.output, output}}) {
      if (elements == 0) continue;
      Result<TypedMemory> allocated = messenger_.allocate(compute_.type(), elements);
      if (!allocated.is_ok()) return allocated.status();
      *part = allocated.take();
    }
  }
  return Status::ok();
}

Result<EvaluationResult> Evaluator::evaluate(int64_t batches, const BatchReader& reader) {
  double loss = 0;
  double tokens = 0;
  for (int64_t batch = 0; batch < batches; ++batch) {
    const Result<LossSum> own = run_batch(batch, reader);
    if (!own.is_ok()) return own.status();
    // Only last stages have a loss and tokens.
    std::array<double, 2> sums = {own.value().loss, static_cast<double>(own.value().tokens)};
    HDT_RETURN_IF_ERROR(messenger_.sum_over_world(sums));
    loss += sums[0];
    tokens += sums[1];
  }
  return EvaluationResult{loss / tokens, static_cast<int64_t>(tokens)};
}

Status Evaluator::post_receive(Slot& slot) {
  if (first_) return Status::ok();
  Result<Pending> posted = messenger_.receive_from_stage(stage_ - 1, slot.input.span());
  if (!posted.is_ok()) return posted.status();
  slot.received = posted.take();
  return Status::ok();
}

Result<LossSum> Evaluator::run_batch(int64_t batch, const BatchReader& reader) {
  const size_t length = static_cast<size_t>(compute_.sequence_length()) + 1;
  LossSum total;
  HDT_RETURN_IF_ERROR(post_receive(slots_[0]));
  for (int micro_batch = 0; micro_batch < replica_.num_micro_batches; ++micro_batch) {
    Slot& slot = slots_[micro_batch % kSlots];
    HDT_RETURN_IF_ERROR(settle(slot.received));
    if (micro_batch + 1 < replica_.num_micro_batches)
      HDT_RETURN_IF_ERROR(post_receive(slots_[(micro_batch + 1) % kSlots]));
    if (first_ || last_) {
      slot.samples.resize(length * replica_.micro_batch_size);
      const int64_t first = first_sample_ + int64_t{micro_batch} * replica_.micro_batch_size;
      for (int i = 0; i < replica_.micro_batch_size; ++i)
        reader(batch, first + i, std::span(slot.samples).subspan(i * length, length));
    }
    // The micro-batch before the last one may still leave from this slot's output.
    HDT_RETURN_IF_ERROR(settle(slot.sent));
    const LossSum loss = compute_.evaluate(slot.samples, slot.input.span(), slot.output.span());
    total.loss += loss.loss;
    total.tokens += loss.tokens;
    if (last_) continue;
    Result<Pending> sent = messenger_.send_to_stage(stage_ + 1, slot.output.span());
    if (!sent.is_ok()) return sent.status();
    slot.sent = sent.take();
  }
  for (Slot& slot : slots_) HDT_RETURN_IF_ERROR(settle(slot.sent));
  return total;
}

}  // namespace hdt::training
