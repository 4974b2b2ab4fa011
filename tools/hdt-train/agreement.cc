// agreement.cc: small collectives of the world. Texts go with their lengths before them.
#include "tools/hdt-train/agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "training/engine/hdt_operation.h"

namespace hdt::tools {
namespace {

using training::status_of;

// The greatest value of all ranks.
Result<int32_t> greatest(int32_t mine, Communicator& world) {
  HDT_RETURN_IF_ERROR(status_of([&] { world.all_reduce({&mine, 1}, HDT_MAX); }));
  return mine;
}

}  // namespace

Status all_ready(const Status& mine, Communicator& world) {
  // Counted from 1, so that 0 means that all are ready. Even a rank that is not ready takes part, as
  // otherwise the others would wait for it.
  const Result<int32_t> unready = greatest(mine.is_ok() ? 0 : world.rank() + 1, world);
  if (!mine.is_ok()) return mine;
  if (!unready.is_ok()) return unready.status();
  if (unready.value() == 0) return Status::ok();
  return {Code::kAborted,
          fmt::format("training did not begin, because rank {} is not ready; its own message has the reason",
                      unready.value() - 1)};
}

Result<bool> any_rank(bool mine, Communicator& world) {
  const Result<int32_t> most = greatest(mine ? 1 : 0, world);
  if (!most.is_ok()) return most.status();
  return most.value() != 0;
}

Result<std::vector<std::string>> gather_texts(std::string_view mine, Communicator& world) {
  const auto size = static_cast<size_t>(world.size());
  const auto own = static_cast<int64_t>(mine.size());
  std::vector<int64_t> lengths(size);
  HDT_RETURN_IF_ERROR(status_of([&] { world.all_gather({&own, 1}, lengths); }));
  // All texts as long as the longest one.
  const auto longest = static_cast<size_t>(std::ranges::max(lengths));
  std::vector<uint8_t> padded(mine.begin(), mine.end());
  padded.resize(longest);
  std::vector<uint8_t> all(world.rank() == 0 ? size * longest : 0);
  if (longest > 0) HDT_RETURN_IF_ERROR(status_of([&] { world.gather(padded, all, 0); }));
  std::vector<std::string> texts;
  for (size_t rank = 0; world.rank() == 0 && rank < size; ++rank) {
    const auto text = std::span(all).subspan(rank * longest, static_cast<size_t>(lengths[rank]));
    texts.emplace_back(text.begin(), text.end());
  }
  return texts;
}

Result<std::string> text_of_rank_0(std::string_view mine, Communicator& world) {
  auto length = static_cast<int64_t>(mine.size());
  HDT_RETURN_IF_ERROR(status_of([&] { world.broadcast({&length, 1}, 0); }));
  std::vector<uint8_t> text(static_cast<size_t>(length));
  if (world.rank() == 0) std::ranges::copy(mine, text.begin());
  if (length > 0) HDT_RETURN_IF_ERROR(status_of([&] { world.broadcast(text, 0); }));
  return std::string(text.begin(), text.end());
}

}  // namespace hdt::tools
