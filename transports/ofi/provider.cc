// provider.cc: see provider.h.
#include "transports/ofi/provider.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "transports/tagged/frame.h"

namespace hdt::transport::ofi {

namespace {

constexpr const char* kBufferVariable = "FI_OFI_RXM_BUFFER_SIZE";
constexpr const char* kEagerVariable = "FI_OFI_RXM_EAGER_LIMIT";

// ofi_rxm over tcp sends up to the eager limit from and into the caller's memory as it is. Above it starts a rendezvous
// by remote reads, and libfabric 1.17 does not survive an endpoint that is closed with one of those under way; so no segment is
// longer. The buffers, 2048 of them an endpoint, then hold only small messages: 16 KiB each would be 34 MiB.
constexpr size_t kTcpSegmentBytes = size_t{128} << 10;
constexpr const char* kTcpBufferBytes = "512";

constexpr std::array<Provider, 3> kProviders = {{{"tcp;ofi_rxm", kTcpSegmentBytes, false},
                                                 {"verbs;ofi_rxm", size_t{1} << 20, false},
                                                 {"shm", size_t{128} << 10, true}}};

bool is_tcp(const Provider& provider) { return &provider == &kProviders[0]; }

}  // namespace

std::span<const Provider> providers() { return kProviders; }

const Provider* find_provider(const std::string& name) {
  const auto found = std::find_if(kProviders.begin(), kProviders.end(),
                                  [&name](const Provider& each) { return each.name == name; });
  return found == kProviders.end() ? nullptr : &*found;
}

void prepare_environment() {
  constexpr int kKeep = 0;
  ::setenv(kBufferVariable, kTcpBufferBytes, kKeep);
  ::setenv(kEagerVariable, std::to_string(kTcpSegmentBytes).c_str(), kKeep);
}

size_t segment_bytes(const Provider& provider) {
  const char* limit = is_tcp(provider) ? std::getenv(kEagerVariable) : nullptr;
  if (limit == nullptr) return provider.segment_bytes;
  return std::clamp<size_t>(std::strtoull(limit, nullptr, 10), tagged::kMinSegmentBytes,
                            provider.segment_bytes);
}

}  // namespace hdt::transport::ofi
