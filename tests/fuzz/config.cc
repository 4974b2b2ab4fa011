// config.cc: the daemon's configuration (base/config.h): its file, and settings "class.dp.weight=3" as
// operators and other daemons send them.
#include "base/config.h"

#include <algorithm>

#include "base/config_keys.h"
#include "daemon/protocol/live_classes.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/target.h"

namespace hdt::fuzz_config {

using fuzz::Bytes;
using fuzz::Choices;

void check(const Config& config) {
  HDT_HOLDS(!config.node.name.empty() && config.node.socket.starts_with("/"));
  HDT_HOLDS(config.node.threads >= 0 && config.nics.port >= 0 && config.nics.port <= 65535);
  HDT_HOLDS(config.timeouts.connect_ms >= 1 && config.timeouts.restart_ms >= 0);
  HDT_HOLDS(engine_threads(config, 4, 8) >= 1);
  nic_selected(config.nics, "eth0");
  config.log_level();
  for (const auto& [name, policy] : config.classes) {
    HDT_HOLDS(!name.empty() && !policy.backends.empty() && !policy.nics.empty());
    HDT_HOLDS(policy.weight >= 1 && policy.weight <= 1000);
    HDT_HOLDS(policy.priority == "bulk" || policy.priority == "latency");
  }
}

Result<Config> load(std::span<const std::byte> text, const ConfigPairs& flags) {
  const fuzz::MemoryFile file(text);
  ConfigSources sources;
  sources.file = file.path();
  sources.flags = flags;
  sources.system_file.clear();
  return load_config(sources);
}

// The values, without where they came from.
std::string values_of(const Config& config) {
  std::string text;
  const std::string printed = print_config(config);
  for (size_t at = 0; at < printed.size();) {
    const size_t end = std::min(printed.find('\n', at), printed.size());
    const std::string line = printed.substr(at, end - at);
    text += line.substr(0, line.rfind("  #")) + "\n";
    at = end + 1;
  }
  return text;
}

// What was read is printed as a file that reads as the same.
bool take_file(std::span<const std::byte> input) {
  const auto read = load(input, {});
  if (!read.is_ok()) {
    HDT_HOLDS(read.status().code() == Code::kConfig && !read.status().message().empty());
    return false;
  }
  check(read.value());
  const auto again = load(fuzz::to_bytes(print_config(read.value())), {});
  if (!again.is_ok())
    std::fprintf(stderr, "%s\n%s\n", print_config(read.value()).c_str(), again.status().message().c_str());
  HDT_HOLDS(again.is_ok() && values_of(again.value()) == values_of(read.value()));
  HDT_HOLDS(again.value().classes == read.value().classes && again.value().backends == read.value().backends);
  return true;
}

// Lines "KEY=VALUE", over a running configuration.
bool take_settings(std::span<const std::byte> input) {
  Config config;
  config.node.name = "n0";
  config.classes["dp"] = {};
  daemon::LiveClass live;
  live.version = 1;
  live.settings = fuzz::to_text(input).substr(0, daemon::kMaxSettings);
  daemon::LiveClasses classes;
  classes.changed(live.settings);
  const auto changed = daemon::with_live_class(config, config, "dp", live);
  if (changed.is_ok()) check(changed.value());
  const Status status = override_config(config, daemon::parse_settings(live.settings), "here");
  if (!status.is_ok()) {
    HDT_HOLDS(!status.message().empty());
    return false;
  }
  check(config);
  print_config(config);
  return true;
}

// Words of a command line, by lines.
bool take_flags(std::span<const std::byte> input) {
  std::vector<std::string> words(1);
  for (const char c : fuzz::to_text(input)) {
    if (c == '\n') {
      words.emplace_back();
    } else if (c != '\0') {
      words.back() += c;
    }
  }
  const size_t before = words.size();
  const auto flags = take_config_flags(words);
  if (!flags.is_ok()) return false;
  HDT_HOLDS(words.size() + flags.value().size() <= before);
  const auto read = load({}, flags.value());
  if (!read.is_ok()) return false;
  check(read.value());
  return !flags.value().empty();
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  switch (choices.get<uint8_t>() % 3) {
    case 0:
      return take_file(choices.rest());
    case 1:
      return take_settings(choices.rest());
    default:
      return take_flags(choices.rest());
  }
}

Bytes text_seed(uint8_t first, const std::string& text) {
  Bytes seed = fuzz::to_bytes(text);
  seed.insert(seed.begin(), std::byte{first});
  return seed;
}

std::vector<Bytes> seeds() {
  Config config;
  config.node.name = "n0";
  config.classes["dp"].weight = 3;
  config.classes["tp"].priority = "latency";
  config.backends["ofi"]["provider"] = "tcp";
  return {text_seed(0, print_config(config)),
          text_seed(0,
                    "[nics]\nport = 0\nuse = [\"eth*\"]\n[class.default]\nbackends = [\"rdma\", \"tcp\"]\n"
                    "[backend.ucx]\ntls = true\n"),
          text_seed(1, "class.dp.weight=3\nclass.dp.nics=eth1,eth2"),
          text_seed(2, "--node.socket\n/tmp/a.sock\n--class.dp.weight=3\nother")};
}

HDT_FUZZ_TARGET(config, take, seeds)

}  // namespace hdt::fuzz_config
