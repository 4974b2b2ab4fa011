// options.cc: reads the options of the tcp backend; see options.h.
#include "transports/tcp/options.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace hdt::transport::tcp {

namespace {

// The maximum that may be configured, and the maximum of "auto".
constexpr size_t kMostSockets = 16;
constexpr size_t kMostAutomaticSockets = 8;
// Bits per second that one core moves through one socket on the way to a fast Ethernet NIC.
constexpr uint64_t kBitsPerSocket = 25'000'000'000;

// The integer that is all of `text`, in [least, most]; nothing otherwise.
std::optional<size_t> number_in(const std::string& text, size_t least, size_t most) {
  size_t value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || stop != text.data() + text.size() || value < least || value > most)
    return std::nullopt;
  return value;
}

// kConfig for a key whose value is not what is expected.
Status wrong(const std::string& key, const std::string& value, const std::string& expected) {
  return {Code::kConfig, "backend tcp: " + key + " = \"" + value + "\"; expected " + expected};
}

}  // namespace

Result<Options> parse_options(const BackendOptions& given) {
  Options options;
  for (const auto& [key, value] : given) {
    if (key == "sockets") {
      const auto number = number_in(value, 1, kMostSockets);
      if (!number && value != "auto")
        return wrong(key, value, "\"auto\" or an integer 1.." + std::to_string(kMostSockets));
      options.sockets = number.value_or(0);
    } else if (key == "zero_copy_bytes") {
      const auto number = number_in(value, 0, kMaxWriteBytes);
      if (!number) return wrong(key, value, "a size in bytes, or 0 for never");
      options.zero_copy_bytes = *number;
    } else if (key == "bind_device") {
      if (value != "true" && value != "false") return wrong(key, value, "true or false");
      options.bind_device = value == "true";
    } else {
      return Status(Code::kConfig, "backend tcp: no option is called \"" + key +
                                       "\"; expected sockets, zero_copy_bytes or bind_device");
    }
  }
  return options;
}

size_t sockets_for(const Options& options, uint64_t bits_per_second) {
  if (options.sockets > 0) return options.sockets;
  const uint64_t needed = (bits_per_second + kBitsPerSocket - 1) / kBitsPerSocket;
  return static_cast<size_t>(std::clamp<uint64_t>(needed, 1, kMostAutomaticSockets));
}

}  // namespace hdt::transport::tcp
