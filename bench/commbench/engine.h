// engine.h: a communicator with the name under which it is measured.
#pragma once

#include <string>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

// The communicator belongs to Engines, or, for HDT, to main().
struct Engine {
  EngineKind kind = EngineKind::kHdt;
  // Version and transport, for people.
  std::string version;
  Communicator* communicator = nullptr;
};

}  // namespace hdt::bench
