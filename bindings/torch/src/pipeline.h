// pipeline.h: HDT's training engine (hdt/train.h) for modules of torch, as hdt_torch.pipeline uses it.
#pragma once

#include <pybind11/pybind11.h>

namespace hdt_torch {

// Adds place_of() and the class Trainer to the module.
void add_pipeline(pybind11::module_& module);

}  // namespace hdt_torch
