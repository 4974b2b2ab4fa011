// exchange_rounds.h: what the test programs do: rank 0 publishes an id under a new key, all others fetch it,
// and rank 0 checks what they saw. Several rounds, the next id published only after everybody has the last
// one.
#pragma once

#include <dlfcn.h>
#include <pmix.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/hmac.h"
#include "libclient/launch/pmix_exchange.h"

namespace hdt::client::test {

template <typename T>
T must(Result<T> result) {
  if (!result.is_ok()) {
    std::fprintf(stderr, "%s\n", result.status().to_string().c_str());
    std::exit(1);
  }
  return result.take();
}

inline void must(const Status& status) {
  if (status.is_ok()) return;
  std::fprintf(stderr, "%s\n", status.to_string().c_str());
  std::exit(1);
}

inline void exchange_rounds(const std::string& prefix, int rounds) {
  PmixExchange& pmix = *must(PmixExchange::instance());
  const int size = must(pmix.job_size());
  const Deadline deadline = Deadline::after_ms(30'000);
  for (int round = 0; round < rounds; ++round) {
    const std::string key = prefix + ".id." + std::to_string(round);
    const std::string seen = prefix + ".seen." + std::to_string(round);
    std::vector<uint8_t> id(128);
    if (pmix.rank() == 0) {
      must(random_bytes(id));
      must(pmix.publish(key, id));
      for (int rank = 1; rank < size; ++rank) {
        if (must(pmix.fetch(rank, seen, deadline)) != id) {
          std::fprintf(stderr, "rank %d saw another id in round %d\n", rank, round);
          std::exit(1);
        }
      }
      std::printf("%s: round %d: %d ranks agree\n", prefix.c_str(), round, size);
    } else {
      must(pmix.publish(seen, must(pmix.fetch(0, key, deadline))));
    }
  }
  // A rank's published values can be fetched as long as it lives. The library is there already: instance()
  // loaded it.
  void* library = dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD);
  const auto fence =
      library == nullptr ? nullptr : reinterpret_cast<decltype(&PMIx_Fence)>(dlsym(library, "PMIx_Fence"));
  if (fence == nullptr || fence(nullptr, 0, nullptr, 0) != PMIX_SUCCESS) {
    std::fprintf(stderr, "PMIx_Fence failed\n");
    std::exit(1);
  }
}

}  // namespace hdt::client::test
