// pipeline.cc: passes a stage of Python functions to HDT's training engine, and the engine's memory to Python
// as tensors. hdt_torch/pipeline has the computation of a stage.
#include "pipeline.h"

#include <ATen/ops/from_blob.h>
#include <torch/csrc/utils/pybind.h>

#include <exception>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "hdt/train.h"
#include "process_group.h"

namespace py = pybind11;

namespace hdt_torch {
namespace {

// Throws what libhdttrain says, as the other calls of this module do.
void check_training(hdtResult_t result, const char* what) {
  if (result != HDT_SUCCESS) throw_backend_error(c10::str("hdt: ", what, ": ", hdtTrainGetLastError()));
}

// The flags of a layout, by their names; a flag that is missing is not given. Owns the rows of the C
// structure.
class LayoutOf {
 public:
  explicit LayoutOf(const py::dict& flags) {
    for (const auto& [key, value] : flags) {
      const auto name = key.cast<std::string>();
      if (name == "num_layers") {
        layout_.num_layers = value.cast<int>();
      } else if (name == "pipeline_model_parallel_size") {
        layout_.pipeline_model_parallel_size = value.cast<int>();
      } else if (name == "hetero_pipeline_stages") {
        splits_ = value.cast<std::vector<std::vector<int>>>();
      } else if (name == "use_tp_pp_dp_mapping") {
        layout_.use_tp_pp_dp_mapping = value.cast<bool>() ? 1 : 0;
      } else if (name == "micro_batch_size") {
        layout_.micro_batch_size = value.cast<int>();
      } else if (name == "micro_batch_size_per_dp") {
        sizes_ = value.cast<std::vector<int>>();
      } else if (name == "num_micro_batches_per_dp") {
        counts_ = value.cast<std::vector<int>>();
      } else if (name == "global_batch_size") {
        layout_.global_batch_size = value.cast<int>();
      } else {
        require(false, "a layout has no flag \"", name, "\"");
      }
    }
    for (const std::vector<int>& split : splits_) rows_.push_back(row_of(split));
    layout_.hetero_pipeline_stages = rows_.data();
    layout_.hetero_pipeline_stages_count = rows_.size();
    layout_.micro_batch_size_per_dp = row_of(sizes_);
    layout_.num_micro_batches_per_dp = row_of(counts_);
  }
  LayoutOf(const LayoutOf&) = delete;
  LayoutOf& operator=(const LayoutOf&) = delete;

  const hdtTrainLayout_t* get() const { return &layout_; }

 private:
  static hdtTrainRow_t row_of(const std::vector<int>& values) { return {values.data(), values.size()}; }

  hdtTrainLayout_t layout_{};
  std::vector<std::vector<int>> splits_;
  std::vector<hdtTrainRow_t> rows_;
  std::vector<int> sizes_, counts_;
};

py::dict place_of(const py::dict& flags, int world_size, int rank) {
  const LayoutOf layout(flags);
  hdtTrainPlace_t place;
  check_training(hdtTrainPlaceOf(layout.get(), world_size, rank, &place), "layout");
  py::dict made;
  made["replica"] = place.replica;
  made["replicas"] = place.replicas;
  made["stage"] = place.stage;
  made["stages"] = place.stages;
  made["units"] = py::make_tuple(place.first_unit, place.end_unit);
  made["previous_rank"] = place.previous_rank;
  made["next_rank"] = place.next_rank;
  made["micro_batch_size"] = place.micro_batch_size;
  made["num_micro_batches"] = place.num_micro_batches;
  made["global_batch_size"] = place.global_batch_size;
  return made;
}

// A trainer of hdt/train.h whose stage is three Python functions. Used by one thread at a time, which holds
// Python's lock when it calls. The lock is given back while the engine works, and taken for the functions.
class PythonTrainer {
 public:
  PythonTrainer(const c10::intrusive_ptr<BackendBase>& group, const py::dict& flags,
                std::vector<size_t> unit_elements, size_t input_elements, size_t output_elements,
                py::function forward, py::function backward, py::function update, double clip_gradient_norm)
      : unit_elements_(std::move(unit_elements)),
        input_elements_(input_elements),
        output_elements_(output_elements),
        forward_(std::move(forward)),
        backward_(std::move(backward)),
        update_(std::move(update)) {
    const auto* const found = dynamic_cast<ProcessGroupHDT*>(group.get());
    require(found != nullptr, "a trainer needs a group of the backend \"hdt\", not of \"",
            group->getBackendName(), "\"");
    const LayoutOf layout(flags);
    check_training(hdtTrainPlaceOf(layout.get(), group->getSize(), group->getRank(), &place_), "layout");
    require(unit_elements_.size() == static_cast<size_t>(place_.end_unit - place_.first_unit),
            unit_elements_.size(), " sizes of units given; this rank has ",
            place_.end_unit - place_.first_unit);
    const hdtTrainStage_t stage = {
        .context = this,
        .unit_elements = unit_elements_.data(),
        .input_elements = input_elements,
        .output_elements = output_elements,
        .forward =
            [](void* context, int slot, const int64_t* samples, size_t count, const void* input, void* output,
               double* loss, int64_t* tokens) {
              auto& self = *static_cast<PythonTrainer*>(context);
              return self.guarded([&] { self.forward(slot, samples, count, input, output, loss, tokens); });
            },
        .backward =
            [](void* context, int slot, const void* output_gradient, void* input_gradient,
               double /*loss_factor*/, hdtTrainUnitDone_t done, void* engine) {
              auto& self = *static_cast<PythonTrainer*>(context);
              return self.guarded(
                  [&] { self.backward(slot, output_gradient, input_gradient, done, engine); });
            },
        .update =
            [](void* context, double gradient_scale) {
              auto& self = *static_cast<PythonTrainer*>(context);
              return self.guarded([&] { self.update_(gradient_scale); });
            }};
    // The modules' numbers are fp32 (hdt_torch/pipeline/_stage.py).
    hdtTrainConfig_t config = HDT_TRAIN_CONFIG_INIT;
    config.clip_gradient_norm = clip_gradient_norm;
    hdtTrainer_t made = nullptr;
    hdtResult_t result;
    {
      const py::gil_scoped_release released;
      result = hdtTrainCreate(found->comm(), layout.get(), &stage, &config, &made);
    }
    check_training(result, "making a trainer");
    trainer_ = std::shared_ptr<hdtTrainer>(
        made, [](hdtTrainer_t trainer) { without_python_lock([&] { hdtTrainDestroy(trainer); }); });
  }
  PythonTrainer(const PythonTrainer&) = delete;
  PythonTrainer& operator=(const PythonTrainer&) = delete;

  // The parameters and the gradients of a unit. The tensors keep the engine's memory alive.
  std::pair<at::Tensor, at::Tensor> unit_memory(int unit) {
    void* parameters = nullptr;
    void* gradients = nullptr;
    check_training(hdtTrainUnitMemory(trainer_.get(), unit, &parameters, &gradients), "a unit's memory");
    const size_t elements = unit_elements_[static_cast<size_t>(unit - place_.first_unit)];
    return {kept(parameters, elements), kept(gradients, elements)};
  }

  py::tuple step(int64_t number) {
    hdtTrainStep_t done;
    hdtResult_t result;
    {
      const py::gil_scoped_release released;
      result = hdtTrainStep(trainer_.get(), number, &done);
    }
    // This rank's own failure, as Python has raised it.
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    check_training(result, "a step");
    return py::make_tuple(done.loss, done.tokens, done.gradient_norm, done.diverged != 0, done.diverged_rank);
  }

  void leave() {
    const py::gil_scoped_release released;
    hdtTrainLeave(trainer_.get());
  }

 private:
  // Runs a part of the stage with Python's lock held. Returns 1 if it throws, which step() throws again.
  template <typename Part>
  int guarded(Part part) {
    const py::gil_scoped_acquire held;
    try {
      part();
      return 0;
    } catch (...) {
      failure_ = std::current_exception();
      return 1;
    }
  }

  // A tensor on memory of the engine for the time of one call; None where there is none.
  static py::object view(const void* memory, size_t count, size_t elements) {
    if (memory == nullptr) return py::none();
    // torch has no read-only tensors. Data of another stage is only read.
    return py::cast(at::from_blob(const_cast<void*>(memory),
                                  {static_cast<int64_t>(count), static_cast<int64_t>(elements)}, at::kFloat));
  }

  at::Tensor kept(void* memory, size_t elements) const {
    return at::from_blob(
        memory, {static_cast<int64_t>(elements)}, [trainer = trainer_](void*) {}, at::kFloat);
  }

  void forward(int slot, const int64_t* samples, size_t count, const void* input, void* output, double* loss,
               int64_t* tokens) {
    py::object numbers = py::none();
    if (samples != nullptr) numbers = py::cast(std::vector<int64_t>(samples, samples + count));
    const py::object made =
        forward_(slot, numbers, view(input, count, input_elements_), view(output, count, output_elements_));
    if (made.is_none()) return;
    std::tie(*loss, *tokens) = made.cast<std::pair<double, int64_t>>();
  }

  void backward(int slot, const void* output_gradient, void* input_gradient, hdtTrainUnitDone_t done,
                void* engine) {
    const py::cpp_function unit_done([done, engine](int unit) {
      const py::gil_scoped_release released;
      done(engine, unit);
    });
    const auto count = static_cast<size_t>(place_.micro_batch_size);
    backward_(slot, view(output_gradient, count, output_elements_),
              view(input_gradient, count, input_elements_), unit_done);
  }

  const std::vector<size_t> unit_elements_;
  const size_t input_elements_, output_elements_;
  const py::function forward_, backward_, update_;
  hdtTrainPlace_t place_{};
  std::exception_ptr failure_;  // of a function of the stage, in the step under way
  std::shared_ptr<hdtTrainer> trainer_;
};

}  // namespace

void add_pipeline(py::module_& module) {
  module.def("place_of", &place_of);
  py::class_<PythonTrainer>(module, "Trainer")
      .def(py::init<const c10::intrusive_ptr<BackendBase>&, const py::dict&, std::vector<size_t>, size_t,
                    size_t, py::function, py::function, py::function, double>())
      .def("unit_memory", &PythonTrainer::unit_memory)
      .def("step", &PythonTrainer::step)
      .def("leave", &PythonTrainer::leave);
}

}  // namespace hdt_torch
