// engines.h: makes the engines of a run from their names.
#pragma once

#include <memory>
#include <vector>

#include "bench/commbench/engine.h"
#include "bench/commbench/options.h"

namespace hdt::bench {

// kInvalidArgument, with the package to install, if one of `kinds` was left out when this program was
// built.
Status check_engines_are_built(const std::vector<EngineKind>& kinds);

// Owns the peers' communicators for the length of a run.
class Engines {
 public:
  // Makes the engines that the options name, in their order. All ranks of `hdt`'s group must call it;
  // `hdt` must outlive the engines.
  static Result<Engines> make(const Options& options, Communicator& hdt);

  // In the order of the options. Valid as long as this object.
  const std::vector<Engine>& list() const { return list_; }

 private:
  std::vector<std::unique_ptr<Communicator>> peers_;
  std::vector<Engine> list_;
};

}  // namespace hdt::bench
