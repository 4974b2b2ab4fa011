// refuse.h: what is wrong with a field of a description, as one line.
#pragma once

#include <string>

#include "base/status.h"

namespace hdt::plan {

inline Status refuse(const std::string& field, const std::string& reason) {
  return {Code::kConfig, field + ": " + reason};
}

}  // namespace hdt::plan
