// evaluation.cc: micro-batch after micro-batch through the pipeline, all in one direction. Each batch ends
// with a sum over the world. It keeps the ranks together, so that no operation waits longer than for one
// batch.
#include "training/engine/evaluation.h"

#include <array>
#include <utility>

#include "training/engine/sample_reader.h"

namespace hdt::training {
namespace {

constexpr size_t kSlots = 2;

}  // namespace

Evaluator::Evaluator(const Layout& layout, const ModelChunks& chunks, Messenger& messenger)
    : messenger_(messenger) {
  const Position position = layout.position_of(messenger.rank());
  replica_ = layout.replica(position.replica);
  stage_ = position.stage;
  first_sample_ = layout.first_sample(position.replica);
  for (StageCompute* const compute : chunks) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.compute = compute;
    chunk.first = compute->units().first == layout.embedding_unit();
    chunk.last = compute->units().end == layout.head_unit() + 1;
  }
}

Result<std::unique_ptr<Evaluator>> Evaluator::create(const Layout& layout, const ModelChunks& chunks,
                                                     Messenger& messenger) {
  std::unique_ptr<Evaluator> evaluator(new Evaluator(layout, chunks, messenger));
  for (Chunk& chunk : evaluator->chunks_) HDT_RETURN_IF_ERROR(evaluator->allocate(chunk));
  return evaluator;
}

Status Evaluator::allocate(Chunk& chunk) {
  const auto tokens = static_cast<size_t>(replica_.micro_batch_size) * chunk.compute->sequence_length();
  const UnitRange units = chunk.compute->units();
  const size_t input = chunk.first ? 0 : chunk.compute->activation_elements(units.first - 1, tokens);
  const size_t output = chunk.last ? 0 : chunk.compute->activation_elements(units.end - 1, tokens);
  chunk.slots.resize(kSlots);
  for (Slot& slot : chunk.slots) {
    for (const auto& [part, elements] : {std::pair{&slot.input, input}, std::pair{&slot.output, output}}) {
      if (elements == 0) continue;
      Result<TypedMemory> allocated = messenger_.allocate(chunk.compute->type(), elements);
      if (!allocated.is_ok()) return allocated.status();
      *part = allocated.take();
    }
  }
  return Status::ok();
}

// The order of the forwards of interleaved 1F1B, which with one chunk is that of the micro-batches.
Evaluator::Chunk& Evaluator::chunk_of(int k) {
  return chunks_[static_cast<size_t>(k / replica_.stages() % replica_.chunks)];
}

int Evaluator::micro_batch_of(int k) const {
  return k / replica_.virtual_stages() * replica_.stages() + k % replica_.stages();
}

Evaluator::Slot& Evaluator::slot_of(int k) { return chunk_of(k).slots[micro_batch_of(k) % kSlots]; }

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

Status Evaluator::post_receive(int k) {
  if (chunk_of(k).first) return Status::ok();
  Slot& slot = slot_of(k);
  // Before the first stage's further chunks comes the last stage.
  Result<Pending> posted =
      messenger_.receive_from_stage((stage_ + replica_.stages() - 1) % replica_.stages(), slot.input.span());
  if (!posted.is_ok()) return posted.status();
  slot.received = posted.take();
  return Status::ok();
}

Result<LossSum> Evaluator::forward(int k, int64_t batch, const BatchReader& reader) {
  Chunk& chunk = chunk_of(k);
  Slot& slot = slot_of(k);
  if (chunk.first || chunk.last || chunk.compute->reads_tokens()) {
    read_samples([&](int64_t index, std::span<int64_t> tokens) { reader(batch, index, tokens); },
                 first_sample_ + int64_t{micro_batch_of(k)} * replica_.micro_batch_size,
                 replica_.micro_batch_size, chunk.compute->sequence_length() + 1, slot.samples);
  }
  // The micro-batch before the last one may still leave from this slot's output.
  HDT_RETURN_IF_ERROR(settle(slot.sent));
  const LossSum loss = chunk.compute->evaluate(slot.samples, slot.input.span(), slot.output.span());
  if (chunk.last) return loss;
  Result<Pending> sent = messenger_.send_to_stage((stage_ + 1) % replica_.stages(), slot.output.span());
  if (!sent.is_ok()) return sent.status();
  slot.sent = sent.take();
  return loss;
}

Result<LossSum> Evaluator::run_batch(int64_t batch, const BatchReader& reader) {
  LossSum total;
  HDT_RETURN_IF_ERROR(post_receive(0));
  const int forwards = replica_.num_micro_batches * replica_.chunks;
  for (int k = 0; k < forwards; ++k) {
    HDT_RETURN_IF_ERROR(settle(slot_of(k).received));
    if (k + 1 < forwards) HDT_RETURN_IF_ERROR(post_receive(k + 1));
    const Result<LossSum> loss = forward(k, batch, reader);
    if (!loss.is_ok()) return loss.status();
    total.loss += loss.value().loss;
    total.tokens += loss.value().tokens;
  }
  for (Chunk& chunk : chunks_) {
    for (Slot& slot : chunk.slots) HDT_RETURN_IF_ERROR(settle(slot.sent));
  }
  return total;
}

}  // namespace hdt::training
