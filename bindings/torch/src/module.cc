// module.cc: the Python module hdt_torch._C: makes a process group, names its class, and closes all of them
// at the end of the interpreter; shared memory.
#include <torch/csrc/utils/pybind.h>

#include <functional>
#include <optional>

#include "class_map.h"
#include "pipeline.h"
#include "process_group.h"
#include "shared_allocator.h"

namespace hdt_torch {

void throw_backend_error(const std::string& text) {
#if HDT_TORCH_HAS_BACKEND
  C10_THROW_ERROR(DistBackendError, text);
#else
  throw Failure(text);
#endif
}

void without_python_lock(const std::function<void()>& call) {
  std::optional<pybind11::gil_scoped_release> released;
  if (Py_IsInitialized() != 0 && PyGILState_Check() != 0) released.emplace();
  call();
}

}  // namespace hdt_torch

namespace py = pybind11;

namespace {

// Without Python's lock: it blocks until all ranks have come, unless they come to reconfigure() later. The
// options' class is not known to Python.
c10::intrusive_ptr<hdt_torch::BackendBase> create(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                  int size, double timeout_s, const std::string& group_class,
                                                  bool deterministic, const std::string& name,
                                                  const std::vector<uint64_t>& global_ranks,
                                                  bool reconfigured) {
  hdt_torch::GroupOptions options;
  options.store = store;
  options.rank = rank;
  options.size = size;
  options.timeout =
      std::chrono::duration_cast<hdt_torch::Milliseconds>(std::chrono::duration<double>(timeout_s));
  options.group_class = group_class;
  options.deterministic = deterministic;
  options.name = name;
  options.global_ranks = global_ranks;
  if (reconfigured) return c10::make_intrusive<hdt_torch::ProcessGroupHDT>(options, nullptr);
  return c10::make_intrusive<hdt_torch::ProcessGroupHDT>(options);
}

py::dict shared_memory() {
  const hdt_torch::SharedMemoryFigures figures = hdt_torch::shared_memory_figures();
  py::dict made;
  made["min_bytes"] = figures.min_bytes;
  made["bytes_in_use"] = figures.pool.in_use;
  made["bytes_held"] = figures.pool.held;
  made["blocks"] = figures.pool.blocks;
  made["slabs"] = figures.pool.slabs;
  made["fallbacks"] = figures.fallbacks;
  made["fallback_bytes"] = figures.fallback_bytes;
  return made;
}

// torch gives out a base class of it. The group behind "cpu:hdt,cuda:..." is reached in Python.
const hdt_torch::ProcessGroupHDT& as_hdt(const c10::intrusive_ptr<hdt_torch::BackendBase>& group) {
  const auto* const found = dynamic_cast<hdt_torch::ProcessGroupHDT*>(group.get());
  TORCH_CHECK(found != nullptr, "hdt: a group of the backend \"", group->getBackendName(),
              "\" given; expected one of \"hdt\"");
  return *found;
}

c10::intrusive_ptr<hdt_torch::BackendBase> without(const c10::intrusive_ptr<hdt_torch::BackendBase>& group,
                                                   const std::vector<int>& excluded, double timeout_s) {
  return as_hdt(group).without(excluded, std::chrono::duration_cast<hdt_torch::Milliseconds>(
                                             std::chrono::duration<double>(timeout_s)));
}

// The settings that the group was made with: (class, deterministic, seconds of its timeout).
std::tuple<std::string, bool, double> options_of(const c10::intrusive_ptr<hdt_torch::BackendBase>& group) {
  const hdt_torch::GroupOptions options = as_hdt(group).options();
  return {options.group_class, options.deterministic, std::chrono::duration<double>(options.timeout).count()};
}

int failed_rank(const c10::intrusive_ptr<hdt_torch::BackendBase>& group) {
  return as_hdt(group).failed_rank();
}

void set_samples(const c10::intrusive_ptr<hdt_torch::BackendBase>& group, uint64_t of_a_step) {
  as_hdt(group).set_samples(of_a_step);
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.def("create", &create, py::call_guard<py::gil_scoped_release>());
  module.def("without", &without, py::call_guard<py::gil_scoped_release>());
  module.def("options_of", &options_of);
  module.def("failed_rank", &failed_rank);
  module.def("set_samples", &set_samples);
  hdt_torch::add_pipeline(module);
  module.def("class_of", &hdt_torch::class_of);
  module.def("close_all", &hdt_torch::Group::close_all, py::call_guard<py::gil_scoped_release>());
  module.def("use_shared_memory", &hdt_torch::use_shared_memory);
  module.def("shared_memory", &shared_memory);
}
