// pipeline_runner.cc: interprets the pipeline schedule on a compute and a messenger.
#include "training/engine/pipeline_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

namespace hdt::training {
namespace {

bool is_receive(PipelineAction action) {
  return action == PipelineAction::kReceiveActivation || action == PipelineAction::kReceiveGradient;
}

}  // namespace

PipelineRunner::PipelineRunner(const Layout& layout, Position position, ScheduleKind schedule,
                               const ModelChunks& chunks, Messenger& messenger)
    : position_(position),
      first_sample_(layout.first_sample(position.replica)),
      replica_(layout.replica(position.replica)),
      messenger_(&messenger),
      schedule_(steps_of(schedule, replica_.stages(), position.stage, replica_.num_micro_batches,
                         replica_.chunks)) {
  for (StageCompute* const compute : chunks) {
    Chunk& chunk = chunks_.emplace_back();
    chunk.compute = compute;
    chunk.first = compute->units().first == layout.embedding_unit();
    chunk.last = compute->units().end == layout.head_unit() + 1;
  }
  for (size_t index = 0; index < schedule_.size(); ++index) {
    const PipelineAction action = schedule_[index].action;
    if (action == PipelineAction::kBackward || action == PipelineAction::kWeightGradient)
      chunks_[schedule_[index].chunk].last_gradient = index;
  }
  while (schedule_[first_forward_].action != PipelineAction::kForward) ++first_forward_;
}

Result<PipelineRunner> PipelineRunner::create(const Layout& layout, Position position, ScheduleKind schedule,
                                              const ModelChunks& chunks, Messenger& messenger) {
  // All replicas, so that all ranks refuse alike.
  for (int index = 0; index < layout.num_replicas(); ++index) {
    const Replica& replica = layout.replica(index);
    HDT_RETURN_IF_ERROR(check_chunks(schedule, replica.stages(), replica.num_micro_batches, replica.chunks));
  }
  if (splits_backward(schedule) && !chunks[0].has_split_backward()) {
    return Status(Code::kInvalidArgument,
                  fmt::format("schedule {}: this model's backward is not in two parts; use {}",
                              schedule_name(schedule), schedule_name(ScheduleKind::kOneForwardOneBackward)));
  }
  PipelineRunner runner(layout, position, schedule, chunks, messenger);
  HDT_RETURN_IF_ERROR(runner.allocate());
  return runner;
}

// As many slots for a chunk as its own micro-batches in flight need.
Status PipelineRunner::allocate() {
  for (size_t index = 0; index < chunks_.size(); ++index) {
    std::vector<PipelineStep> own;
    std::ranges::copy_if(schedule_, std::back_inserter(own),
                         [&](const PipelineStep& step) { return step.chunk == static_cast<int>(index); });
    HDT_RETURN_IF_ERROR(allocate(chunks_[index], most_in_flight(own)));
  }
  return Status::ok();
}

// Every slot has buffers for its neighbours' messages: an input and its gradient if there is a virtual stage
// before, an output and its gradient if there is one behind.
Status PipelineRunner::allocate(Chunk& chunk, int in_flight) {
  const auto tokens = static_cast<size_t>(replica_.micro_batch_size) * chunk.compute->sequence_length();
  const UnitRange units = chunk.compute->units();
  const size_t input = chunk.first ? 0 : chunk.compute->activation_elements(units.first - 1, tokens);
  const size_t output = chunk.last ? 0 : chunk.compute->activation_elements(units.end - 1, tokens);
  chunk.slots.resize(static_cast<size_t>(in_flight) + 1);
  for (Slot& slot : chunk.slots) {
    std::vector<std::pair<TypedMemory*, size_t>> parts;
    if (!chunk.first) parts = {{&slot.input, input}, {&slot.input_gradient, input}};
    if (!chunk.last) {
      parts.emplace_back(&slot.output, output);
      parts.emplace_back(&slot.output_gradient, output);
    }
    for (const auto& [part, elements] : parts) {
      Result<TypedMemory> allocated = messenger_->allocate(chunk.compute->type(), elements);
      if (!allocated.is_ok()) return allocated.status();
      *part = allocated.take();
    }
  }
  return Status::ok();
}

Result<LossSum> PipelineRunner::run(const SampleReader& samples, const StageCompute::UnitDone& unit_done,
                                    const std::function<Status()>& before_forward) {
  LossSum loss;
  // The first receive is posted before anything is computed; each further one when its predecessor has come.
  HDT_RETURN_IF_ERROR(post_next_receive(0));
  for (size_t index = 0; index < schedule_.size(); ++index) {
    if (index == first_forward_) HDT_RETURN_IF_ERROR(before_forward());
    HDT_RETURN_IF_ERROR(take(index, samples, unit_done, loss));
  }
  for (Chunk& chunk : chunks_) {
    for (Slot& slot : chunk.slots) {
      HDT_RETURN_IF_ERROR(settle(slot.activation_sent));
      HDT_RETURN_IF_ERROR(settle(slot.gradient_sent));
    }
  }
  return loss;
}

// Posts the first receive at or after step `from`.
Status PipelineRunner::post_next_receive(size_t from) {
  receive_step_ = from;
  while (receive_step_ < schedule_.size() && !is_receive(schedule_[receive_step_].action)) ++receive_step_;
  if (receive_step_ == schedule_.size()) return Status::ok();
  // The buffer may be written: the slot's previous micro-batch is over, as there is a slot more than
  // micro-batches in flight.
  const PipelineStep step = schedule_[receive_step_];
  const bool activation = step.action == PipelineAction::kReceiveActivation;
  Slot& slot = slot_of(chunks_[step.chunk], step.micro_batch);
  Result<Pending> posted = messenger_->receive_from_stage(
      neighbour(activation ? -1 : +1), activation ? slot.input.span() : slot.output_gradient.span());
  if (!posted.is_ok()) return posted.status();
  receive_ = posted.take();
  return Status::ok();
}

Status PipelineRunner::take(size_t index, const SampleReader& samples,
                            const StageCompute::UnitDone& unit_done, LossSum& loss) {
  const PipelineStep step = schedule_[index];
  Chunk& chunk = chunks_[step.chunk];
  Slot& slot = slot_of(chunk, step.micro_batch);
  // Gradients accumulate over the micro-batches, so they are complete in the last step that adds to them.
  const StageCompute::UnitDone done = index == chunk.last_gradient ? unit_done : [](int) {};
  switch (step.action) {
    // The receive was posted earlier. Receives are posted one at a time and in order, so it is this step's.
    case PipelineAction::kReceiveActivation:
    case PipelineAction::kReceiveGradient:
      HDT_RETURN_IF_ERROR(settle(receive_));
      return post_next_receive(index + 1);
    case PipelineAction::kForward:
      return forward(step, chunk, slot, samples, loss);
    // Both forms of the backward write `input_gradient`, which the slot's previous micro-batch may still be
    // sending.
    case PipelineAction::kBackward:
      HDT_RETURN_IF_ERROR(settle(slot.gradient_sent));
      chunk.compute->backward(slot_index(chunk, step.micro_batch), slot.output_gradient.span(),
                              slot.input_gradient.span(), done);
      return Status::ok();
    case PipelineAction::kInputGradient:
      HDT_RETURN_IF_ERROR(settle(slot.gradient_sent));
      chunk.compute->backward_input(slot_index(chunk, step.micro_batch), slot.output_gradient.span(),
                                    slot.input_gradient.span());
      return Status::ok();
    case PipelineAction::kWeightGradient:
      chunk.compute->backward_weights(slot_index(chunk, step.micro_batch), done);
      return Status::ok();
    case PipelineAction::kSendActivation:
      return send(+1, slot.output.span(), slot.activation_sent);
    case PipelineAction::kSendGradient:
      return send(-1, slot.input_gradient.span(), slot.gradient_sent);
  }
  return {Code::kInternal, "a step of the schedule has no action"};
}

Status PipelineRunner::send(int distance, ConstTypedSpan values, Pending& sent) {
  Result<Pending> started = messenger_->send_to_stage(neighbour(distance), values);
  if (!started.is_ok()) return started.status();
  sent = started.take();
  return Status::ok();
}

Status PipelineRunner::forward(PipelineStep step, Chunk& chunk, Slot& slot, const SampleReader& samples,
                               LossSum& loss) {
  // forward() writes `output`, which the slot's previous micro-batch may still be sending.
  HDT_RETURN_IF_ERROR(settle(slot.activation_sent));
  if (chunk.first || chunk.last) read_samples(step.micro_batch, samples, slot);
  const LossSum more = chunk.compute->forward(slot_index(chunk, step.micro_batch), slot.samples,
                                              slot.input.span(), slot.output.span());
  loss.loss += more.loss;
  loss.tokens += more.tokens;
  return Status::ok();
}

// The replica's micro-batches are consecutive parts of its range of the global batch.
void PipelineRunner::read_samples(int micro_batch, const SampleReader& samples, Slot& slot) {
  const size_t length = static_cast<size_t>(chunks_.front().compute->sequence_length()) + 1;
  slot.samples.resize(length * replica_.micro_batch_size);
  const int64_t first = first_sample_ + int64_t{micro_batch} * replica_.micro_batch_size;
  for (int i = 0; i < replica_.micro_batch_size; ++i) {
    samples(first + i, std::span(slot.samples).subspan(i * length, length));
  }
}

}  // namespace hdt::training
