// Reads and writes measurements as JSON. The reader trusts nothing: each number must be there and within
// its limits, or the whole file is refused.
#include "daemon/links/measurements_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/atomic_file.h"
#include "base/foreign_json.h"
#include "base/unique_fd.h"
#include "ipc/wake_page.h"

namespace hdt::daemon {

namespace {

using nlohmann::json;

// changes with the meaning of the fields
constexpr int kFormat = 2;
constexpr size_t kMaxFileBytes = size_t{4} << 20;
constexpr size_t kMaxLinks = 16'384;
constexpr size_t kMaxNameBytes = 256;
// Only this user writes it.
constexpr mode_t kMode = 0644;
// A hundred times what hardware does. A larger number was not measured.
constexpr uint64_t kMostBytesPerSecond = 100'000'000'000'000;
constexpr uint64_t kLongestLatencyNs = 10'000'000'000;

// A number from 1 to `most`; nothing: it is missing, of another type, or out of range.
std::optional<uint64_t> number(const json& object, const char* key, uint64_t most) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned()) return std::nullopt;
  const auto value = found->get<uint64_t>();
  if (value == 0 || value > most) return std::nullopt;
  return value;
}

// False: the entry is damaged. `rates` is set only if both numbers are good.
bool read_memory(const json& object, ipc::MemoryRates& rates) {
  if (!object.is_object()) return false;
  const auto copy = number(object, "copy_bytes_s", kMostBytesPerSecond);
  const auto reduce = number(object, "reduce_bytes_s", kMostBytesPerSecond);
  if (copy && reduce) rates = {*copy, *reduce};
  return copy && reduce;
}

// False: the entry is damaged. Engines are limited to kMaxEngines, so that the map cannot grow beyond
// reason.
bool read_link(const json& object, KnownMeasurements& measurements) {
  if (!object.is_object() || !object.contains("node") || !object["node"].is_string() ||
      !object.contains("engine") || !object["engine"].is_number_unsigned()) {
    return false;
  }
  const auto name = object["node"].get<std::string>();
  const auto engine = object["engine"].get<uint64_t>();
  const auto latency = number(object, "latency_ns", kLongestLatencyNs);
  const auto bytes = number(object, "bytes_s", kMostBytesPerSecond);
  const auto duplex = number(object, "duplex_bytes_s", kMostBytesPerSecond);
  if (name.empty() || name.size() > kMaxNameBytes || engine >= ipc::kMaxEngines || !latency || !bytes ||
      !duplex)
    return false;
  measurements.links[{name, static_cast<uint32_t>(engine)}] = {*latency, *bytes, *duplex};
  return true;
}

// Nothing: the text is no such file. Without "memory" or "links" it is no damage: these were not measured.
//
// 1. The outer form, and the format's number.
// 2. The memory's rates.
// 3. Each link; one that is damaged makes the file useless, since nobody knows what else is.
std::optional<KnownMeasurements> parse(const std::string& text) {
  const auto parsed = parse_foreign_json(text, kMaxFileBytes);
  if (!parsed.is_ok()) return std::nullopt;
  // An older or newer format is measured anew.
  const json& all = parsed.value();
  if (!all.is_object() || all.value("format", json()) != kFormat) return std::nullopt;
  KnownMeasurements measurements;
  if (all.contains("memory") && !read_memory(all["memory"], measurements.memory)) return std::nullopt;
  const json links = all.value("links", json::array());
  if (!links.is_array() || links.size() > kMaxLinks) return std::nullopt;
  for (const json& link : links) {
    if (!read_link(link, measurements)) return std::nullopt;
  }
  return measurements;
}

}  // namespace

// A file that does not exist is no error: nothing was measured yet. After any error the caller measures
// anew and writes over the file.
Result<KnownMeasurements> load_measurements(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    if (errno == ENOENT) return KnownMeasurements{};
    return Status::from_errno("opening " + path, errno);
  }
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t got = ::read(file.get(), part, sizeof part);
    if (got < 0) return Status::from_errno("reading " + path, errno);
    if (got == 0) break;
    text.append(part, static_cast<size_t>(got));
    // parse() is not asked about a file that is too long.
    if (text.size() > kMaxFileBytes) break;
  }
  auto measurements = text.size() > kMaxFileBytes ? std::nullopt : parse(text);
  if (!measurements) return Status(Code::kInvalidArgument, path + " holds no measurements of links");
  return *measurements;
}

// Called whenever something new was measured, which is rare. A crash or a power loss leaves the old file or
// the new one.
Status save_measurements(const std::string& path, const KnownMeasurements& measurements) {
  // Everything that is known, and not only the news: the file is replaced as a whole.
  json all = {{"format", kFormat}, {"links", json::array()}};
  if (measurements.memory.measured()) {
    all["memory"] = {{"copy_bytes_s", measurements.memory.copy_bytes_s},
                     {"reduce_bytes_s", measurements.memory.reduce_bytes_s}};
  }
  for (const auto& [whom, rates] : measurements.links) {
    all["links"].push_back({{"node", whom.first},
                            {"engine", whom.second},
                            {"latency_ns", rates.latency_ns},
                            {"bytes_s", rates.bytes_s},
                            {"duplex_bytes_s", rates.duplex_bytes_s}});
  }
  // Node names may hold bytes that are no UTF-8; they are replaced in the file.
  const std::string text = all.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
  return write_file_atomically(path, text, kMode);
}

}  // namespace hdt::daemon
