// api_counts.cc: the C interface of hdtSuggestCounts. Nothing is sent: the rates are those that all daemons
// agreed on when the group was made.
#include <algorithm>
#include <span>
#include <string>

#include "hdt/hdt.h"
#include "libclient/api/submit.h"
#include "libclient/common/counts.h"

using hdt::Code;
using hdt::Status;
using hdt::client::CommRef;

hdtResult_t hdtSuggestCounts(hdtComm_t handle, size_t count, hdtDataType_t type, size_t counts[]) {
  const CommRef comm(handle);
  Status status = hdt::client::check(comm, {}, 0, type);
  if (status.is_ok() && counts == nullptr) status = {Code::kInvalidArgument, "counts is null"};
  // As in check(), but for all ranks together.
  if (status.is_ok() && count > uint64_t{1} << 56)
    status = {Code::kInvalidArgument, "count " + std::to_string(count) + " is too large"};
  if (!status.is_ok()) return hdt::client::report(status);
  return hdt::client::guarded([&] {
    const hdt::client::CommunicatorOptions& options = comm->communicator->options();
    const hdt::client::NodeAccess& access = comm->communicator->access();
    // The reductions of a deterministic group go from every rank to every other one, which chains do not
    // help.
    const std::span<const uint64_t> rates =
        options.deterministic ? std::span<const uint64_t>() : access.segment.node_rates();
    const auto suggested = hdt::client::suggested_counts(access.order, rates, count, hdtTypeSize(type));
    std::ranges::copy(suggested, counts);
    return HDT_SUCCESS;
  });
}
