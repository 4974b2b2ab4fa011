// lost_rank.cc: puts the message together.
#include "tools/hdt-train/lost_rank.h"

#include <fmt/format.h>

#include "tools/hdt-train/run_summary.h"
#include "training/engine/hdt_messenger.h"
#include "training/engine/hdt_operation.h"

namespace hdt::tools {

Status failure_of_step(int64_t step, const Status& failure, const training::Layout& layout,
                       Communicator& world, const std::string& newest_checkpoint) {
  const Status cause = training::cause_of(world, failure);
  int lost = -1;
  // It may not be known; the message is complete without it.
  const Status known = training::status_of([&] { lost = world.failed_rank(); });
  std::string who;
  if (known.is_ok() && lost >= 0 && lost < layout.world_size())
    who = fmt::format("because of {}: ", place_text(lost, layout));
  const std::string goes_on = newest_checkpoint.empty()
                                  ? "there is no checkpoint"
                                  : fmt::format("the newest checkpoint is {}", newest_checkpoint);
  return {cause.code(),
          fmt::format("training ended in step {}: {}{}; {}", step, who, cause.message(), goes_on)};
}

}  // namespace hdt::tools
