// refuse.h: the error for a field of a description, as one line.
#pragma once

#include <string>

#include "base/status.h"

namespace hdt::plan {

// kConfig with "FIELD: REASON". The reader that knows the file puts its path before.
inline Status refuse(const std::string& field, const std::string& reason) {
  return {Code::kConfig, field + ": " + reason};
}

}  // namespace hdt::plan
