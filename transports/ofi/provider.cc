// provider.cc: the providers and their settings; see provider.h. The limits below avoid what libfabric
// 1.17 does not survive (docs/design/ofi.md).
#include "transports/ofi/provider.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "transports/tagged/frame.h"

namespace hdt::transport::ofi {

namespace {

constexpr const char* kBufferVariable = "FI_OFI_RXM_BUFFER_SIZE";
constexpr const char* kEagerVariable = "FI_OFI_RXM_EAGER_LIMIT";

// ofi_rxm sends a message in one of three ways: up to the eager limit as it is; longer ones in parts
// (SAR); still longer ones by a rendezvous of remote reads. If an endpoint is closed, libfabric 1.17
// survives only messages of the first kind under way, so no segment is longer than the eager limit.
//
// Over tcp such messages are sent from and received into the caller's memory. The buffers, 2048 for each
// endpoint, then hold small messages only: with the default of 16 KiB each they would take 34 MiB. Over
// verbs the limit is the size of the buffers, through which everything is copied.
constexpr size_t kTcpSegmentBytes = size_t{256} << 10;
constexpr const char* kTcpBufferBytes = "512";
constexpr size_t kVerbsSegmentBytes = size_t{9} << 10;
static_assert(kVerbsSegmentBytes >= tagged::kMaxFrameBytes);

constexpr std::array<Provider, 3> kProviders = {
    {{"tcp;ofi_rxm", kTcpSegmentBytes, false, kEagerVariable},
     {"verbs;ofi_rxm", kVerbsSegmentBytes, false, kBufferVariable},
     {"shm", tagged::kMaxSegmentBytes, true, nullptr}}};

bool is_verbs(const Provider& provider) { return &provider == &kProviders[1]; }

// A variable that is set already, by whoever started the process, stays.
void set_default(const char* variable, const std::string& value) {
  constexpr int kKeep = 0;
  ::setenv(variable, value.c_str(), kKeep);
}

}  // namespace

std::span<const Provider> providers() { return kProviders; }

const Provider* find_provider(const std::string& name) {
  const auto found = std::find_if(kProviders.begin(), kProviders.end(),
                                  [&name](const Provider& each) { return each.name == name; });
  return found == kProviders.end() ? nullptr : &*found;
}

void prepare_environment(const Provider& provider) {
  if (!is_verbs(provider)) {
    set_default(kBufferVariable, kTcpBufferBytes);
    set_default(kEagerVariable, std::to_string(kTcpSegmentBytes));
    return;
  }
  set_default(kBufferVariable, std::to_string(kVerbsSegmentBytes));
  // Receives belong to the endpoint instead of the connection: those of a connection are posted again
  // through it when it is closed already.
  set_default("FI_OFI_RXM_USE_SRX", "1");
  // More than the frames and segments that can be on their way. The default, 4096, would take 40 MiB.
  set_default("FI_OFI_RXM_MSG_RX_SIZE", "256");
}

// A value that is no number becomes the minimum.
size_t segment_bytes(const Provider& provider) {
  const char* limit = provider.limit_variable == nullptr ? nullptr : std::getenv(provider.limit_variable);
  if (limit == nullptr) return provider.segment_bytes;
  return std::clamp<size_t>(std::strtoull(limit, nullptr, 10), tagged::kMinSegmentBytes,
                            provider.segment_bytes);
}

}  // namespace hdt::transport::ofi
