// train.cc: the C interface of the training engine: a stage of C functions as a StageCompute, and a trainer
// with the groups that it works on.
#include "hdt/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "training/engine/hdt_messenger.h"
#include "training/engine/hdt_operation.h"
#include "training/engine/layout_flags.h"
#include "training/engine/trainer.h"

namespace hdt::training {
namespace {

thread_local std::string last_error;

hdtResult_t result_of(const Status& status) {
  last_error = status.message();
  return static_cast<hdtResult_t>(status.code());
}

// Thrown through the engine where a function of the stage has failed. The engine keeps no state of a step
// that the exception could spoil.
struct StageFailed {
  std::string message;
};

void check_stage(int failed, const char* function) {
  if (failed != 0) throw StageFailed{fmt::format("{} of this rank's stage has failed", function)};
}

std::vector<int> values_of(const hdtTrainRow_t& row) {
  return row.count == 0 ? std::vector<int>() : std::vector<int>(row.values, row.values + row.count);
}

std::optional<int> if_given(int value) { return value == 0 ? std::nullopt : std::optional(value); }

Result<Layout> layout_of(const hdtTrainLayout_t& given, int world_size) {
  LayoutFlags flags;
  flags.world_size = world_size;
  flags.num_layers = given.num_layers;
  flags.pipeline_model_parallel_size = if_given(given.pipeline_model_parallel_size);
  for (size_t i = 0; i < given.hetero_pipeline_stages_count; ++i) {
    flags.hetero_pipeline_stages.push_back(values_of(given.hetero_pipeline_stages[i]));
  }
  flags.use_tp_pp_dp_mapping = given.use_tp_pp_dp_mapping != 0;
  flags.micro_batch_size = if_given(given.micro_batch_size);
  flags.micro_batch_size_per_dp = values_of(given.micro_batch_size_per_dp);
  flags.num_micro_batches_per_dp = values_of(given.num_micro_batches_per_dp);
  flags.global_batch_size = if_given(given.global_batch_size);
  return make_layout(flags);
}

// The caller's stage for the engine. A sample is "one token and its target": the sample's number, and a 0
// that nobody reads.
class CallersStage final : public StageCompute {
 public:
  CallersStage(const hdtTrainStage_t& stage, UnitRange units, NumberType type)
      : stage_(stage),
        units_(units),
        unit_elements_(stage.unit_elements, stage.unit_elements + units.size()),
        type_(type) {}

  NumberType type() const override { return type_; }
  UnitRange units() const override { return units_; }
  // The caller keeps checkpoints itself, so a unit is one tensor, whatever it consists of.
  std::vector<TensorInfo> tensors(int unit) const override {
    return {
        {fmt::format("unit.{}", unit), {static_cast<int64_t>(unit_elements_[unit - units_.first])}, false}};
  }
  // The caller asks for the memory, and writes start values there.
  void bind(int /*unit*/, TypedSpan /*parameters*/, TypedSpan /*gradients*/) override {}
  void initialize(int /*unit*/, uint64_t /*seed*/) override {}
  int sequence_length() const override { return 1; }
  size_t activation_elements(int unit, size_t tokens) const override {
    return tokens * (unit < units_.first ? stage_.input_elements : stage_.output_elements);
  }

  LossSum forward(int slot, const MicroBatch& batch, ConstTypedSpan input, TypedSpan output) override {
    // The caller's stage computes all units in one call.
    for (int unit = units_.first; unit < units_.end; ++unit) batch.need(unit);
    loss_factor_ = batch.loss_factor;
    numbers_.clear();
    for (size_t i = 0; i < batch.samples.size(); i += 2) numbers_.push_back(batch.samples[i]);
    const size_t count = numbers_.empty() ? input.size() / stage_.input_elements : numbers_.size();
    LossSum loss;
    check_stage(stage_.forward(stage_.context, slot, numbers_.empty() ? nullptr : numbers_.data(), count,
                               data_of(input), data_of(output), &loss.loss, &loss.tokens),
                "forward");
    return loss;
  }

  void backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                const UnitDone& unit_done) override {
    const hdtTrainUnitDone_t done = [](void* engine, int unit) {
      (*static_cast<const UnitDone*>(engine))(unit);
    };
    check_stage(stage_.backward(stage_.context, slot, data_of(output_gradient), data_of(input_gradient),
                                loss_factor_, done, const_cast<UnitDone*>(&unit_done)),
                "backward");
  }

  void update(double gradient_scale) { check_stage(stage_.update(stage_.context, gradient_scale), "update"); }

 private:
  // NULL for an empty one.
  template <typename Byte>
  static Byte* data_of(BasicTypedSpan<Byte> values) {
    return values.empty() ? nullptr : values.data();
  }

  hdtTrainStage_t stage_;
  UnitRange units_;
  std::vector<size_t> unit_elements_;
  NumberType type_;
  std::vector<int64_t> numbers_;  // of the samples of the micro-batch under way
  double loss_factor_ = 1;        // of the step under way
};

// Nothing: no model is trained in it.
std::optional<NumberType> trained_type(hdtDataType_t type) {
  const auto* const found = std::ranges::find(kNumberTypes, type, data_type_of);
  return found == std::end(kNumberTypes) ? std::nullopt : std::optional(*found);
}

// What a config says.
struct Settings {
  NumberTypes types;
  double clip_gradient_norm = 0;
  std::optional<LossScaleOptions> loss_scale = {};
};

// The scale of the config; the caller has found out that one is used. "" or what is wrong.
std::string read_loss_scale(const hdtTrainConfig_t& config, LossScaleOptions& scale) {
  const auto is_scale = [](double value) { return value >= 1e-30 && value <= 1e30; };
  if (config.loss_scale != 0) {
    if (!is_scale(config.loss_scale))
      return fmt::format("loss_scale is {}; expected 0, or 1e-30 to 1e30", config.loss_scale);
    scale = {.constant = config.loss_scale};
    return "";
  }
  if (!is_scale(config.min_loss_scale) || !is_scale(config.initial_loss_scale) ||
      config.initial_loss_scale < config.min_loss_scale) {
    return fmt::format(
        "min_loss_scale is {} and initial_loss_scale {}; expected 1e-30 to 1e30, and the first one not "
        "larger",
        config.min_loss_scale, config.initial_loss_scale);
  }
  if (config.loss_scale_window < 1 || config.loss_scale_hysteresis < 1) {
    return fmt::format("loss_scale_window is {} and loss_scale_hysteresis {}; expected 1 or more",
                       config.loss_scale_window, config.loss_scale_hysteresis);
  }
  scale = {.initial = config.initial_loss_scale,
           .minimum = config.min_loss_scale,
           .window = config.loss_scale_window,
           .hysteresis = config.loss_scale_hysteresis};
  return "";
}

Result<Settings> settings_of(const hdtTrainConfig_t& config) {
  const auto refused = [](std::string reason) {
    return Status(Code::kInvalidArgument, "the config: " + std::move(reason));
  };
  if (config.size < sizeof(hdtTrainConfig_t))
    return refused(fmt::format("size is {}; expected {}", config.size, sizeof(hdtTrainConfig_t)));
  const std::optional<NumberType> parameters = trained_type(config.parameter_type);
  const std::optional<NumberType> gradients = trained_type(config.gradient_type);
  if (!parameters || !gradients) {
    return refused(fmt::format(
        "parameter_type is {} and gradient_type {}; expected HDT_FLOAT32, HDT_BFLOAT16, HDT_FLOAT16 or "
        "HDT_FLOAT64",
        static_cast<int>(config.parameter_type), static_cast<int>(config.gradient_type)));
  }
  Settings settings{.types = {*parameters, *gradients}, .clip_gradient_norm = config.clip_gradient_norm};
  if (!go_together(settings.types)) {
    return refused(fmt::format("gradients in {} of parameters in {}; expected {} or the parameters' type",
                               number_type_name(*gradients), number_type_name(*parameters),
                               number_type_name(state_type_of(*parameters))));
  }
  if (!(config.clip_gradient_norm >= 0))
    return refused(fmt::format("clip_gradient_norm is {}; expected 0 or more", config.clip_gradient_norm));
  if (config.loss_scale != 0 || *parameters == NumberType::kFloat16) {
    const std::string problem = read_loss_scale(config, settings.loss_scale.emplace());
    if (!problem.empty()) return refused(problem);
  }
  return settings;
}

// All ranks must call it. A maximum of x and one of -x sum to zero where all have the same x.
Status check_same(const Settings& settings, Messenger& messenger) {
  // Whether there is one follows from the type and the constant.
  const LossScaleOptions scale = settings.loss_scale.value_or(LossScaleOptions());
  struct Setting {
    const char* name;
    double value;
  };
  const std::array<Setting, 8> all = {
      {{"parameter_type", static_cast<double>(data_type_of(settings.types.parameters))},
       {"gradient_type", static_cast<double>(data_type_of(settings.types.gradients))},
       {"clip_gradient_norm", std::min(settings.clip_gradient_norm, std::numeric_limits<double>::max())},
       {"loss_scale", scale.constant},
       {"initial_loss_scale", scale.initial},
       {"min_loss_scale", scale.minimum},
       {"loss_scale_window", static_cast<double>(scale.window)},
       {"loss_scale_hysteresis", static_cast<double>(scale.hysteresis)}}};
  std::vector<double> greatest;
  for (const Setting& setting : all) greatest.insert(greatest.end(), {setting.value, -setting.value});
  HDT_RETURN_IF_ERROR(messenger.max_over_world(greatest));
  for (size_t i = 0; i < all.size(); ++i) {
    if (greatest[2 * i] + greatest[2 * i + 1] == 0) continue;
    // This rank leaves the group at once; who has entered one more operation has the maxima.
    (void)lowest_rank_with(true, messenger);
    return {Code::kMismatch, fmt::format("the config: {} is {} on rank {}, and another number elsewhere",
                                         all[i].name, all[i].value, messenger.rank())};
  }
  return Status::ok();
}

// Sizes that would make the engine wait for numbers that never come, or divide by zero.
Status check_stage_sizes(const hdtTrainStage_t& stage, const Layout& layout, Position position) {
  if (stage.unit_elements == nullptr || stage.forward == nullptr || stage.backward == nullptr ||
      stage.update == nullptr) {
    return {Code::kInvalidArgument, "unit_elements, forward, backward or update of the stage is NULL"};
  }
  const bool first = position.stage == 0;
  const bool last = position.stage == layout.replica(position.replica).stages() - 1;
  if (first != (stage.input_elements == 0) || last != (stage.output_elements == 0)) {
    return {Code::kInvalidArgument,
            fmt::format("input_elements is {} and output_elements {} for stage {} of {}; expected 0 where "
                        "there is no other stage, and more elsewhere",
                        stage.input_elements, stage.output_elements, position.stage,
                        layout.replica(position.replica).stages())};
  }
  return Status::ok();
}

}  // namespace
}  // namespace hdt::training

// The members are destroyed last first: the trainer's pending messages, its groups, then the world's.
struct hdtTrainer {
  hdt::Communicator world;
  hdt::training::Layout layout;
  hdt::training::CallersStage stage;
  std::unique_ptr<hdt::training::Messenger> messenger = nullptr;
  std::unique_ptr<hdt::training::Trainer> trainer = nullptr;
  hdt::Status ended = hdt::Status::ok();  // why there is no further step

  // Leaves the groups. The parameters stay.
  void leave(const hdt::Status& why) {
    if (ended.is_ok()) ended = why;
    trainer->give_up();
    messenger.reset();
  }
  // Fails the step on all ranks, so that no rank waits for this one.
  void fail(const hdt::Status& why) {
    (void)hdtCommAbort(world.get());
    leave(why);
  }
};

namespace hdt::training {
namespace {

Result<std::unique_ptr<hdtTrainer>> create(hdtComm_t comm, const hdtTrainLayout_t& given,
                                           const hdtTrainStage_t& stage, const hdtTrainConfig_t& config) {
  const Result<Settings> settings = settings_of(config);
  if (!settings.is_ok()) return settings.status();
  const NumberTypes& types = settings.value().types;
  int rank = 0;
  int size = 0;
  HDT_RETURN_IF_ERROR(status_of([&] {
    check(hdtCommUserRank(comm, &rank));
    check(hdtCommCount(comm, &size));
  }));
  Result<Layout> layout = layout_of(given, size);
  if (!layout.is_ok()) return layout.status();
  const Position position = layout.value().position_of(rank);
  HDT_RETURN_IF_ERROR(check_stage_sizes(stage, layout.value(), position));
  // A group of its own, so that calls of others on `comm` do not come between.
  hdtComm_t own = nullptr;
  HDT_RETURN_IF_ERROR(status_of([&] { check(hdtCommSplit(comm, 0, rank, &own, nullptr)); }));
  auto made = std::unique_ptr<hdtTrainer>(
      new hdtTrainer{Communicator::adopt(own), layout.value(),
                     CallersStage(stage, layout.value().units_of(position), types.parameters)});
  Result<std::unique_ptr<Messenger>> messenger =
      make_hdt_messenger(made->world, made->layout, types.parameters == NumberType::kFloat64);
  if (!messenger.is_ok()) return messenger.status();
  made->messenger = messenger.take();
  HDT_RETURN_IF_ERROR(check_same(settings.value(), *made->messenger));
  TrainerOptions options;
  options.clip_gradient_norm = settings.value().clip_gradient_norm;
  options.gradients = types.gradients;
  options.loss_scale = settings.value().loss_scale;
  options.update = [stage = &made->stage](double scale, std::span<const training::BucketShards>) {
    stage->update(scale);
  };
  const int64_t batch = made->layout.global_batch_size();
  Result<std::unique_ptr<Trainer>> trainer = Trainer::create(
      made->layout, made->stage, *made->messenger,
      [batch](int64_t step, int64_t index, std::span<int64_t> sample) { sample[0] = step * batch + index; },
      options);
  if (!trainer.is_ok()) return trainer.status();
  made->trainer = trainer.take();
  return made;
}

Result<StepResult> step(hdtTrainer& trainer, int64_t number) {
  if (!trainer.ended.is_ok()) {
    return Status(Code::kInvalidUsage, "there is no further step: " + trainer.ended.message());
  }
  Result<StepResult> done = StepResult();
  try {
    done = trainer.trainer->step(number);
    if (!done.is_ok()) done = cause_of(trainer.world, done.status());
  } catch (const StageFailed& failure) {
    done = Status(Code::kAborted, failure.message);
  }
  if (!done.is_ok()) {
    trainer.fail(done.status());
  } else if (done.value().diverged) {
    trainer.ended = Status(Code::kInvalidUsage, fmt::format("step {} has diverged", number));
  }
  return done;
}

}  // namespace
}  // namespace hdt::training

using hdt::Code;
using hdt::Status;
using namespace hdt::training;  // NOLINT(google-build-using-namespace): this file is that namespace's C face

hdtResult_t hdtTrainPlaceOf(const hdtTrainLayout_t* layout, int world_size, int rank,
                            hdtTrainPlace_t* place) {
  if (layout == nullptr || place == nullptr) {
    return result_of(Status(Code::kInvalidArgument, "hdtTrainPlaceOf: layout or place is NULL"));
  }
  const hdt::Result<Layout> made = layout_of(*layout, world_size);
  if (!made.is_ok()) return result_of(made.status());
  if (rank < 0 || rank >= world_size) {
    return result_of(
        Status(Code::kInvalidArgument, fmt::format("rank {} given; expected 0 to {}", rank, world_size - 1)));
  }
  const Position position = made.value().position_of(rank);
  const Replica& replica = made.value().replica(position.replica);
  const UnitRange units = made.value().units_of(position);
  const auto rank_at = [&](int stage) {
    return stage < 0 || stage >= replica.stages() ? -1 : made.value().rank_of({position.replica, stage});
  };
  *place = {.replica = position.replica,
            .replicas = made.value().num_replicas(),
            .stage = position.stage,
            .stages = replica.stages(),
            .first_unit = units.first,
            .end_unit = units.end,
            .previous_rank = rank_at(position.stage - 1),
            .next_rank = rank_at(position.stage + 1),
            .micro_batch_size = replica.micro_batch_size,
            .num_micro_batches = replica.num_micro_batches,
            .global_batch_size = made.value().global_batch_size()};
  return HDT_SUCCESS;
}

hdtResult_t hdtTrainCreate(hdtComm_t comm, const hdtTrainLayout_t* layout, const hdtTrainStage_t* stage,
                           const hdtTrainConfig_t* config, hdtTrainer_t* trainer) {
  if (layout == nullptr || stage == nullptr || trainer == nullptr) {
    return result_of(Status(Code::kInvalidArgument, "hdtTrainCreate: layout, stage or trainer is NULL"));
  }
  const hdtTrainConfig_t defaults = HDT_TRAIN_CONFIG_INIT;
  try {
    hdt::Result<std::unique_ptr<hdtTrainer>> made =
        create(comm, *layout, *stage, config == nullptr ? defaults : *config);
    if (!made.is_ok()) return result_of(made.status());
    *trainer = made.take().release();
    return HDT_SUCCESS;
  } catch (const std::exception& failure) {  // no memory
    return result_of(Status(Code::kSystem, std::string("making a trainer: ") + failure.what()));
  }
}

hdtResult_t hdtTrainUnitMemory(hdtTrainer_t trainer, int unit, void** parameters, void** gradients) {
  if (trainer == nullptr || parameters == nullptr || gradients == nullptr ||
      !trainer->stage.units().contains(unit)) {
    return result_of(
        Status(Code::kInvalidArgument,
               fmt::format("hdtTrainUnitMemory: NULL, or unit {} that this stage does not hold", unit)));
  }
  UnitMemory& memory = trainer->trainer->memory();
  *parameters = memory.parameters(unit).data();
  *gradients = memory.gradients(unit).data();
  return HDT_SUCCESS;
}

hdtResult_t hdtTrainStep(hdtTrainer_t trainer, int64_t step_number, hdtTrainStep_t* result) {
  if (trainer == nullptr || result == nullptr || step_number < 0) {
    return result_of(
        Status(Code::kInvalidArgument, fmt::format("hdtTrainStep: NULL, or step {} below 0", step_number)));
  }
  try {
    const hdt::Result<StepResult> done = step(*trainer, step_number);
    if (!done.is_ok()) return result_of(done.status());
    *result = {.loss = done.value().loss,
               .tokens = done.value().tokens,
               .gradient_norm = done.value().gradient_norm,
               .diverged = done.value().diverged ? 1 : 0,
               .diverged_rank = done.value().diverged_rank,
               .skipped = done.value().skipped ? 1 : 0,
               .loss_scale = done.value().loss_scale};
    return HDT_SUCCESS;
  } catch (const std::exception& failure) {  // no memory
    const Status why(Code::kSystem, std::string("a step: ") + failure.what());
    trainer->fail(why);
    return result_of(why);
  }
}

void hdtTrainLeave(hdtTrainer_t trainer) {
  if (trainer != nullptr) trainer->leave(Status(Code::kInvalidUsage, "this rank has left the groups"));
}

void hdtTrainDestroy(hdtTrainer_t trainer) { delete trainer; }

const char* hdtTrainGetLastError() { return last_error.c_str(); }
