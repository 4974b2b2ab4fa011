// gloo_store.h: Gloo's rendezvous through the group that is there already: every rank publishes once, what
// all of them have published is then known everywhere.
#pragma once

#include <gloo/rendezvous/store.h>

#include <map>
#include <string>
#include <vector>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

class GlooStore : public gloo::rendezvous::Store {
 public:
  explicit GlooStore(Communicator& group) : group_(group) {}

  // Collective over the group: all ranks must call it, each once.
  void set(const std::string& key, const std::vector<char>& data) override;
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;

 private:
  Communicator& group_;
  std::map<std::string, std::vector<char>> values_;
};

}  // namespace hdt::bench
