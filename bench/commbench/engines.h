// engines.h: the engines of a run, from their names.
#pragma once

#include <memory>
#include <vector>

#include "bench/commbench/engine.h"
#include "bench/commbench/options.h"

namespace hdt::bench {

// kInvalidArgument, with what to install, if a peer is asked for that this program was built without.
Status check_engines_are_built(const std::vector<EngineKind>& kinds);

class Engines {
 public:
  // Collective over `hdt`'s group, which must outlive the engines.
  static Result<Engines> make(const Options& options, Communicator& hdt);

  const std::vector<Engine>& list() const { return list_; }

 private:
  std::vector<std::unique_ptr<Communicator>> peers_;
  std::vector<Engine> list_;
};

}  // namespace hdt::bench
