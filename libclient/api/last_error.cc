// last_error.cc: the last error of each thread, and the proof that the codes and types of hdt.h have the
// same numbers as the ones that the code uses internally. The two lists are separate because hdt.h is C
// and includes nothing of HDT; the casts in libclient/api rely on the equality.
#include "libclient/api/last_error.h"

#include <new>

#include "collectives/types.h"
#include "libclient/api/thread_value.h"

namespace hdt::client {

// Each list exists once in meaning and twice in spelling.
static_assert(static_cast<int>(Code::kSuccess) == HDT_SUCCESS &&
              static_cast<int>(Code::kInProgress) == HDT_IN_PROGRESS &&
              static_cast<int>(Code::kInvalidArgument) == HDT_ERR_INVALID_ARGUMENT &&
              static_cast<int>(Code::kInvalidUsage) == HDT_ERR_INVALID_USAGE &&
              static_cast<int>(Code::kSystem) == HDT_ERR_SYSTEM &&
              static_cast<int>(Code::kInternal) == HDT_ERR_INTERNAL &&
              static_cast<int>(Code::kNoDaemon) == HDT_ERR_NO_DAEMON &&
              static_cast<int>(Code::kDaemonLost) == HDT_ERR_DAEMON_LOST &&
              static_cast<int>(Code::kVersion) == HDT_ERR_VERSION &&
              static_cast<int>(Code::kTimeout) == HDT_ERR_TIMEOUT &&
              static_cast<int>(Code::kMismatch) == HDT_ERR_MISMATCH &&
              static_cast<int>(Code::kRankLost) == HDT_ERR_RANK_LOST &&
              static_cast<int>(Code::kLink) == HDT_ERR_LINK &&
              static_cast<int>(Code::kAborted) == HDT_ERR_ABORTED &&
              static_cast<int>(Code::kConfig) == HDT_ERR_CONFIG &&
              static_cast<int>(Code::kNoBackend) == HDT_ERR_NO_BACKEND);
static_assert(static_cast<int>(collectives::DataType::kInt32) == HDT_INT32 &&
              static_cast<int>(collectives::DataType::kInt64) == HDT_INT64 &&
              static_cast<int>(collectives::DataType::kFloat16) == HDT_FLOAT16 &&
              static_cast<int>(collectives::DataType::kBFloat16) == HDT_BFLOAT16 &&
              static_cast<int>(collectives::DataType::kFloat32) == HDT_FLOAT32 &&
              static_cast<int>(collectives::DataType::kFloat64) == HDT_FLOAT64 &&
              static_cast<int>(collectives::DataType::kInt8) == HDT_INT8 &&
              static_cast<int>(collectives::DataType::kUint8) == HDT_UINT8 &&
              static_cast<int>(collectives::DataType::kInt16) == HDT_INT16 &&
              static_cast<int>(collectives::DataType::kUint16) == HDT_UINT16 &&
              static_cast<int>(collectives::DataType::kUint32) == HDT_UINT32 &&
              static_cast<int>(collectives::DataType::kUint64) == HDT_UINT64 &&
              static_cast<int>(collectives::DataType::kFloat8E4M3) == HDT_FLOAT8E4M3 &&
              static_cast<int>(collectives::DataType::kFloat8E5M2) == HDT_FLOAT8E5M2);
static_assert(static_cast<int>(collectives::ReduceOp::kSum) == HDT_SUM &&
              static_cast<int>(collectives::ReduceOp::kProd) == HDT_PROD &&
              static_cast<int>(collectives::ReduceOp::kMin) == HDT_MIN &&
              static_cast<int>(collectives::ReduceOp::kMax) == HDT_MAX &&
              static_cast<int>(collectives::ReduceOp::kAvg) == HDT_AVG &&
              static_cast<int>(collectives::ReduceOp::kBand) == HDT_BAND &&
              static_cast<int>(collectives::ReduceOp::kBor) == HDT_BOR &&
              static_cast<int>(collectives::ReduceOp::kBxor) == HDT_BXOR);

namespace {
struct LastMessage;
// Static destructors may fail, too, so the value outlives thread_local objects.
std::string& last_message() { return thread_value<std::string, LastMessage>(); }
}  // namespace

// Without memory for the text, the code is all that the caller gets.
hdtResult_t report(const Status& status) {
  try {
    if (!status.is_ok() && status.code() != Code::kInProgress) last_message() = status.to_string();
  } catch (const std::bad_alloc&) {
    last_message().clear();
  }
  return static_cast<hdtResult_t>(status.code());
}

const char* last_error() { return last_message().c_str(); }

}  // namespace hdt::client
