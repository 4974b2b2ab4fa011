// engine.h: a communicator under the name by which it is measured.
#pragma once

#include <string>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

struct Engine {
  EngineKind kind = EngineKind::kHdt;
  std::string version;  // and transport, for people
  Communicator* communicator = nullptr;
};

}  // namespace hdt::bench
