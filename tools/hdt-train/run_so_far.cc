// run_so_far.cc: see run_so_far.h.
#include "tools/hdt-train/run_so_far.h"

#include <fmt/format.h>

namespace hdt::tools {

std::string RunSoFar::text() const {
  return fmt::format(
      "elastic: ranks were lost {} {}, and {} {} done again; the summary is of the steps since\n", losses,
      losses == 1 ? "time" : "times", repeated_steps, repeated_steps == 1 ? "step was" : "steps were");
}

}  // namespace hdt::tools
