// host_name.cc: gethostname().
#include "base/host_name.h"

#include <unistd.h>

#include <array>

namespace hdt {

std::string host_name() {
  std::array<char, 65> name{};  // Linux allows 64 bytes
  return gethostname(name.data(), name.size() - 1) == 0 && name[0] != '\0' ? name.data() : "localhost";
}

}  // namespace hdt
