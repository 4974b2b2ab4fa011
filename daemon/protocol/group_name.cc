// group_name.cc: a group's name is the first 8 bytes of SHA-256(kPurpose, id).
#include "daemon/protocol/group_name.h"

#include <array>
#include <cstring>

#include <fmt/format.h>

#include "base/hmac.h"

namespace hdt::daemon {

namespace {

// Separates this use of SHA-256 from others, so that no other hash that HDT shows can equal a group's
// name. Its closing zero is hashed, too.
constexpr char kPurpose[] = "hdt name of a group";
constexpr size_t kShortDigits = 8;

}  // namespace

// Computed anew each time: it is needed for logs and reports only, and never while data moves.
std::string id_text(uint64_t group) {
  std::array<uint8_t, sizeof kPurpose + sizeof group> text{};
  std::memcpy(text.data(), kPurpose, sizeof kPurpose);
  std::memcpy(text.data() + sizeof kPurpose, &group, sizeof group);
  const auto digest = sha256(text);
  if (!digest.is_ok()) return "without a name";
  uint64_t name = 0;
  std::memcpy(&name, digest.value().data(), sizeof name);
  return fmt::format("{:016x}", name);
}

std::string short_id(uint64_t group) { return id_text(group).substr(0, kShortDigits); }

}  // namespace hdt::daemon
