// pipeline_runner.cc: interprets the pipeline schedule on a compute and a messenger.
#include "training/engine/pipeline_runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

namespace hdt::training {
namespace {

bool is_receive(PipelineAction action) {
  return action == PipelineAction::kReceiveActivation || action == PipelineAction::kReceiveGradient;
}

// After such a step the chunk reads nothing of its micro-batch any more.
bool completes_gradients(PipelineAction action) {
  return action == PipelineAction::kBackward || action == PipelineAction::kWeightGradient;
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
    if (completes_gradients(schedule_[index].action)) chunks_[schedule_[index].chunk].last_gradient = index;
  }
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
  plan_receives();
  return Status::ok();
}

// A slot is free when the gradients of its previous micro-batch are complete.
void PipelineRunner::plan_receives() {
  std::map<std::pair<int, int>, size_t> over;  // by chunk and micro-batch
  for (size_t index = 0; index < schedule_.size(); ++index) {
    const PipelineStep step = schedule_[index];
    if (completes_gradients(step.action)) over[{step.chunk, step.micro_batch}] = index + 1;
  }
  for (size_t index = 0; index < schedule_.size(); ++index) {
    const PipelineStep step = schedule_[index];
    if (!is_receive(step.action)) continue;
    const int previous = step.micro_batch - static_cast<int>(chunks_[step.chunk].slots.size());
    to_receive_.push_back({index, previous < 0 ? 0 : over.at({step.chunk, previous})});
  }
}

// Every slot has buffers for its neighbours' messages: an input and its gradient if there is a virtual stage
// before, an output and its gradient if there is one behind.
Status PipelineRunner::allocate(Chunk& chunk, int in_flight) {
  const auto tokens = static_cast<size_t>(replica_.micro_batch_size) * chunk.compute->sequence_length();
  const UnitRange units = chunk.compute->units();
  const size_t input = chunk.first ? 0 : chunk.compute->activation_elements(units.first - 1, tokens);
  const size_t output = chunk.last ? 0 : chunk.compute->activation_elements(units.end - 1, tokens);
  chunk.slots.resize(static_cast<size_t>(in_flight) + kSpareSlots);
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

Result<LossSum> PipelineRunner::run(int64_t step, const SampleReader& samples,
                                    const StageCompute::UnitDone& unit_done, const UnitNeeded& unit_needed) {
  step_ = step;
  Run run = {samples, unit_done, unit_needed};
  next_receive_ = 0;
  for (size_t index = 0; index < schedule_.size(); ++index) {
    HDT_RETURN_IF_ERROR(post_receives(index));
    HDT_RETURN_IF_ERROR(take(index, run));
  }
  for (Chunk& chunk : chunks_) {
    for (Slot& slot : chunk.slots) {
      HDT_RETURN_IF_ERROR(wait_for(slot.activation_sent));
      HDT_RETURN_IF_ERROR(wait_for(slot.gradient_sent));
    }
  }
  return run.loss;
}

// In the order of the schedule, which is that of the messages of each neighbour. So a receive whose buffer is
// not free holds back those behind it.
Status PipelineRunner::post_receives(size_t index) {
  while (next_receive_ < to_receive_.size() && receives_.size() < kMostReceives &&
         to_receive_[next_receive_].free_at <= index) {
    const PipelineStep step = schedule_[to_receive_[next_receive_].step];
    const bool activation = step.action == PipelineAction::kReceiveActivation;
    Slot& slot = slot_of(chunks_[step.chunk], step.micro_batch);
    Result<Pending> posted = messenger_->receive_from_stage(
        neighbour(activation ? -1 : +1), activation ? slot.input.span() : slot.output_gradient.span());
    if (!posted.is_ok()) return posted.status();
    receives_.push_back(posted.take());
    ++next_receive_;
  }
  return Status::ok();
}

// There are more slots than micro-batches in flight, so a buffer is free before its turn, and the receive has
// been posted.
Status PipelineRunner::finish_receive(size_t index) {
  if (receives_.empty() || to_receive_[next_receive_ - receives_.size()].step != index)
    return {Code::kInternal, fmt::format("step {} of the schedule: its receive was not posted", index)};
  Pending receive = std::move(receives_.front());
  receives_.pop_front();
  return wait_for(receive);
}

Status PipelineRunner::take(size_t index, Run& run) {
  const PipelineStep step = schedule_[index];
  Chunk& chunk = chunks_[step.chunk];
  Slot& slot = slot_of(chunk, step.micro_batch);
  // Gradients accumulate over the micro-batches, so they are complete in the last step that adds to them.
  const StageCompute::UnitDone done = index == chunk.last_gradient ? run.unit_done : [](int) {};
  switch (step.action) {
    case PipelineAction::kReceiveActivation:
    case PipelineAction::kReceiveGradient:
      return finish_receive(index);
    case PipelineAction::kForward:
      return forward(step, chunk, slot, run);
    // Both forms of the backward write `input_gradient`, which the slot's previous micro-batch may still be
    // sending.
    case PipelineAction::kBackward: {
      HDT_RETURN_IF_ERROR(wait_for(slot.gradient_sent));
      const TimedPart timed(times_.compute);
      chunk.compute->backward(slot_index(chunk, step.micro_batch), slot.output_gradient.span(),
                              slot.input_gradient.span(), done);
      return Status::ok();
    }
    case PipelineAction::kInputGradient: {
      HDT_RETURN_IF_ERROR(wait_for(slot.gradient_sent));
      const TimedPart timed(times_.compute);
      chunk.compute->backward_input(slot_index(chunk, step.micro_batch), slot.output_gradient.span(),
                                    slot.input_gradient.span());
      return Status::ok();
    }
    case PipelineAction::kWeightGradient: {
      const TimedPart timed(times_.compute);
      chunk.compute->backward_weights(slot_index(chunk, step.micro_batch), done);
      return Status::ok();
    }
    case PipelineAction::kSendActivation:
      return send(+1, slot.output.span(), slot.activation_sent);
    case PipelineAction::kSendGradient:
      return send(-1, slot.input_gradient.span(), slot.gradient_sent);
  }
  return {Code::kInternal, "a step of the schedule has no action"};
}

Status PipelineRunner::wait_for(Pending& operation) {
  if (!operation) return Status::ok();
  const TimedPart timed(times_.pp);
  return settle(operation);
}

Status PipelineRunner::send(int distance, ConstTypedSpan values, Pending& sent) {
  Result<Pending> started = messenger_->send_to_stage(neighbour(distance), values);
  if (!started.is_ok()) return started.status();
  sent = started.take();
  return Status::ok();
}

Status PipelineRunner::forward(PipelineStep step, Chunk& chunk, Slot& slot, Run& run) {
  // forward() writes `output`, which the slot's previous micro-batch may still be sending.
  HDT_RETURN_IF_ERROR(wait_for(slot.activation_sent));
  const int64_t first_sample = first_sample_of(step.micro_batch);
  if (chunk.first || chunk.last || chunk.compute->reads_tokens())
    read_samples(run.samples, first_sample, replica_.micro_batch_size, chunk.compute->sequence_length() + 1,
                 slot.samples);
  MicroBatch batch = {step_, first_sample, slot.samples, loss_factor_};
  // Parameters come while the first micro-batch is computed. After a failure it is computed to its end, and
  // nobody gets the result.
  const UnitRange units = chunk.compute->units();
  int next = step.micro_batch == 0 ? units.first : units.end;
  Status come;
  if (step.micro_batch == 0) {
    batch.unit_needed = [&](int unit) {
      if (unit == next) ++next;
      const TimedPart timed(times_.dp);
      if (come.is_ok()) come = run.unit_needed(unit);
    };
  }
  // What the compute has waited for parameters is not its own time.
  const double waited = times_.dp;
  LossSum more;
  {
    const TimedPart timed(times_.compute);
    more = chunk.compute->forward(slot_index(chunk, step.micro_batch), batch, slot.input.span(),
                                  slot.output.span());
  }
  times_.compute -= times_.dp - waited;
  HDT_RETURN_IF_ERROR(come);
  if (next != units.end)
    return {Code::kInternal, fmt::format("the model did not wait for the parameters of unit {}", next)};
  run.loss.loss += more.loss;
  run.loss.tokens += more.tokens;
  return Status::ok();
}

}  // namespace hdt::training
