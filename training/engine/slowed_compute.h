// slowed_compute.h: an emulated slow device: a stage that computes the same and takes several times as long.
//
// After each piece of work (a forward; a unit's part of a backward) it sleeps until the piece has taken
// `factor` times the CPU time that the calling thread spent on it. So it shows how a run behaves whose
// devices differ in speed, with ranks that mostly sleep and of which many fit on few cores. It says
// nothing about any real device. If a core is taken away from the rank, that time counts as part of the
// sleep. Work on other threads is not seen: the wrapped stage must use one thread.
#pragma once

#include <memory>

#include "training/engine/compute.h"

namespace hdt::training {

// Wraps `compute`. `factor` must be above 1.
std::unique_ptr<TextCompute> make_slowed_compute(std::unique_ptr<TextCompute> compute, double factor);

}  // namespace hdt::training
