// provider.h: libfabric's providers that this backend drives, and what is particular to each.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace hdt::transport::ofi {

struct Provider {
  const char* name;
  size_t segment_bytes;  // of payload, in one operation
  bool stays_in_node;    // reaches no other node
  // The variable of libfabric's environment that limits what is sent without a rendezvous; nullptr: there is
  // none.
  const char* limit_variable;
};

// The first is the default.
std::span<const Provider> providers();
const Provider* find_provider(const std::string& name);
// Settings that libfabric takes from the environment only; those that are there already stay. To be called
// before anything of libfabric is, by the one thread that loads backends.
void prepare_environment(const Provider& provider);
// Of the provider as the environment sets it up.
size_t segment_bytes(const Provider& provider);

}  // namespace hdt::transport::ofi
