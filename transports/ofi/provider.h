// provider.h: the providers of libfabric that this backend drives, and what is particular to each.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace hdt::transport::ofi {

// A constant; there is one for each provider.
struct Provider {
  const char* name;      // as libfabric and the configuration have it
  size_t segment_bytes;  // the maximum of payload in one operation, in bytes
  bool stays_in_node;    // it reaches no other node
  // The environment variable of libfabric that limits what is sent without a rendezvous; nullptr: there is
  // none.
  const char* limit_variable;
};

// All of them; the first is the default.
std::span<const Provider> providers();
// nullptr: there is no provider of that name.
const Provider* find_provider(const std::string& name);
// Makes the settings that libfabric takes from the environment only. Variables that are set already stay.
// libfabric reads them once, so a process uses one provider of ofi_rxm. To be called before anything else
// of libfabric, by the one thread that loads backends: setenv() is not safe beside getenv().
void prepare_environment(const Provider& provider);
// The segment length with the environment as it is: the variable may lower it.
size_t segment_bytes(const Provider& provider);

}  // namespace hdt::transport::ofi
