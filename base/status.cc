// status.cc: the texts of the codes, and of errno values.
#include "base/status.h"

#include <cstring>

#include "base/limits.h"

namespace hdt {

// No default branch: the compiler warns if a code has no text. A number that is no code falls through.
const char* code_text(Code code) {
  switch (code) {
    case Code::kSuccess:
      return "success";
    case Code::kInProgress:
      return "in progress";
    case Code::kInvalidArgument:
      return "invalid argument";
    case Code::kInvalidUsage:
      return "call not allowed now";
    case Code::kSystem:
      return "the operating system refused";
    case Code::kInternal:
      return "internal error";
    case Code::kNoDaemon:
      return "no daemon answers";
    case Code::kDaemonLost:
      return "the daemon was lost";
    case Code::kVersion:
      return "protocol versions differ";
    case Code::kTimeout:
      return "deadline passed";
    case Code::kMismatch:
      return "ranks called different things";
    case Code::kRankLost:
      return "a rank of the group was lost";
    case Code::kLink:
      return "no connection between two nodes works";
    case Code::kAborted:
      return "the group was aborted";
    case Code::kConfig:
      return "wrong configuration";
    case Code::kNoBackend:
      return "no backend fits both nodes";
  }
  return "unknown code";
}

Status Status::from_errno(const std::string& what, int error) {
  const std::string limit = limit_behind(error);
  return {Code::kSystem, what + ": " + std::strerror(error) + (limit.empty() ? "" : ": " + limit)};
}

std::string Status::to_string() const {
  std::string text = code_text(code_);
  return message_.empty() ? text : text + ": " + message_;
}

}  // namespace hdt
