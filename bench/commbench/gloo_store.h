// gloo_store.h: Gloo's rendezvous over a group that exists already. Every rank publishes once, and then
// knows what all ranks have published.
#pragma once

#include <gloo/rendezvous/store.h>

#include <map>
#include <string>
#include <vector>

#include "bench/commbench/communicator.h"

namespace hdt::bench {

// Serves one connectFullMesh(). Errors are exceptions, as Gloo expects.
class GlooStore : public gloo::rendezvous::Store {
 public:
  explicit GlooStore(Communicator& group) : group_(group) {}

  // Publishes this rank's data and receives that of all others. All ranks must call it, each once.
  void set(const std::string& key, const std::vector<char>& data) override;
  // The data of a key; throws if no rank has published it. wait() does not wait, for set() has already
  // exchanged everything.
  std::vector<char> get(const std::string& key) override;
  void wait(const std::vector<std::string>& keys) override;

 private:
  Communicator& group_;
  // By key: what all ranks have published.
  std::map<std::string, std::vector<char>> values_;
};

}  // namespace hdt::bench
