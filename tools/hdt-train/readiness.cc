// readiness.cc: one allreduce of the largest number of a rank that is not ready.
#include "tools/hdt-train/readiness.h"

#include <fmt/format.h>

#include "training/engine/hdt_operation.h"

namespace hdt::tools {

Status all_ready(const Status& mine, Communicator& world) {
  // Counted from 1, so that 0 means that all are ready.
  int32_t unready = mine.is_ok() ? 0 : world.rank() + 1;
  // Even a rank that is not ready takes part, as otherwise the others would wait for it.
  const Status told = training::status_of([&] { world.all_reduce({&unready, 1}, HDT_MAX); });
  if (!mine.is_ok()) return mine;
  if (!told.is_ok()) return told;
  if (unready == 0) return Status::ok();
  return {Code::kAborted,
          fmt::format("training did not begin, because rank {} is not ready; its own message has the reason",
                      unready - 1)};
}

}  // namespace hdt::tools
