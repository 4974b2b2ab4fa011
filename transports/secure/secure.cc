// secure.cc: the names of protections, as security.transport has them in the configuration (see secure.h).
#include "transports/secure/secure.h"

namespace hdt::transport::secure {

const char* name_of(Protection protection) {
  switch (protection) {
    case Protection::kNone:
      return "none";
    case Protection::kMac:
      return "mac";
    case Protection::kEncrypt:
      return "encrypt";
  }
  return "unknown";
}

std::optional<Protection> parse_protection(const std::string& text) {
  for (const Protection one : {Protection::kNone, Protection::kMac, Protection::kEncrypt}) {
    if (text == name_of(one)) return one;
  }
  return std::nullopt;
}

}  // namespace hdt::transport::secure
