// options.h: what [backend.tcp] of the configuration says.
#pragma once

#include <cstddef>
#include <memory>

#include "transports/module.h"
#include "transports/secure/secure.h"

namespace hdt::transport::tcp {

struct Options {
  // Connections between two NICs; 0: as many as their speed needs.
  size_t sockets = 0;
  // Payload from this size on is sent without a copy, as long as the kernel says that it did not copy; 0:
  // never. Below some 10 KB the bookkeeping costs more than the copy (the kernel's msg_zerocopy.rst).
  size_t zero_copy_bytes = size_t{64} << 10;
  // Sockets use their own NIC whatever the routing table says.
  bool bind_device = false;
  // Protects all connections; null: none. No text of the configuration: the owner sets it.
  std::shared_ptr<const secure::Security> security{};
};

Result<Options> parse_options(const BackendOptions& given);
// Of a NIC of this speed; 0: unknown.
size_t sockets_for(const Options& options, uint64_t bits_per_second);
std::unique_ptr<Backend> make_backend(const Options& options);

}  // namespace hdt::transport::tcp
