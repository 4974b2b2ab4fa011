// host_name.h: what this machine calls itself.
#pragma once

#include <string>

namespace hdt {

// The kernel's name of the host, at most 64 bytes; "localhost" where it has none. Any thread.
std::string host_name();

}  // namespace hdt
