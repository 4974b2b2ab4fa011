// options.h: the options of the tcp backend: [backend.tcp] of the configuration, and the protection that
// the daemon adds.
#pragma once

#include <cstddef>
#include <memory>

#include "transports/module.h"
#include "transports/secure/secure.h"

namespace hdt::transport::tcp {

// Copied into every device, where it does not change.
struct Options {
  // Connections between two NICs, 1 to 16; 0 ("auto"): as many as the NIC's speed needs.
  size_t sockets = 0;
  // Payload of at least this many bytes is sent without a copy, as long as the kernel reports that it
  // did not copy. 0: never. Below some 10 KB the bookkeeping costs more than the copy (the kernel's
  // msg_zerocopy.rst).
  size_t zero_copy_bytes = size_t{64} << 10;
  // Sockets use their own NIC whatever the routing table says (SO_BINDTODEVICE).
  bool bind_device = false;
  // Protects all connections; null: none is protected. It is not read from [backend.tcp]: the daemon
  // sets it.
  std::shared_ptr<const secure::Security> security{};
};

// Reads the texts of [backend.tcp]. kConfig, with the key and what is expected, for an unknown key or a
// wrong value.
Result<Options> parse_options(const BackendOptions& given);
// How many connections to make between NICs of this speed; 0 bits per second: unknown, which needs one.
size_t sockets_for(const Options& options, uint64_t bits_per_second);
// A tcp backend with these options.
std::unique_ptr<Backend> make_backend(const Options& options);

}  // namespace hdt::transport::tcp
