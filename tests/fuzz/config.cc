// config.cc: the daemon's configuration (base/config.h): its file, flags, variables of the environment, and
// settings "class.dp.weight=3" as operators and other daemons send them.
#include "base/config.h"

#include <algorithm>
#include <cstdlib>

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
  if (!config.classes.contains("default") && !config.classes.contains("of nobody"))
    HDT_HOLDS(config.class_named("of nobody") == ClassConfig());
  for (const auto& [name, policy] : config.classes) {
    HDT_HOLDS(config.class_named(name) == policy);
    HDT_HOLDS(!name.empty() && !policy.backends.empty() && !policy.nics.empty());
    HDT_HOLDS(policy.weight >= 1 && policy.weight <= 1000);
    HDT_HOLDS(policy.priority == "bulk" || policy.priority == "latency");
  }
}

Result<Config> load(std::span<const std::byte> text, const ConfigPairs& flags,
                    const ConfigPairs& environment = {}) {
  const fuzz::MemoryFile file(text);
  ConfigSources sources;
  sources.file = file.path();
  sources.flags = flags;
  sources.environment = environment;
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

// A file of 1 MiB is read, a longer one is not, nor is a folder.
bool check_file_limits() {
  Bytes text(size_t{1} << 20, std::byte{'\n'});
  HDT_HOLDS(load(text, {}).is_ok());
  text.push_back(std::byte{'\n'});
  HDT_HOLDS(load(text, {}).status().code() == Code::kConfig);
  ConfigSources folder;
  folder.file = "/proc/self/fd";
  HDT_HOLDS(load_config(folder).status().code() == Code::kConfig);
  return true;
}

// A configuration that was read is printed as a file that reads as the same.
bool take_file(std::span<const std::byte> input) {
  static const bool checked = check_file_limits();
  HDT_HOLDS(checked);
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
  const daemon::LiveClass before = classes.of("dp");
  HDT_HOLDS(before.version <= 1 && (before.version == 1 || before.settings.empty()));
  HDT_HOLDS(before.settings.size() <= 2 * live.settings.size());  // a line may get the '=' that it lacks
  classes.as_configured();
  const daemon::LiveClass after = classes.of("dp");
  HDT_HOLDS(after.settings.empty() && after.version == (before.version == 0 ? 0 : before.version + 1));
  static const Config configured =
      load(fuzz::to_bytes("[class.dp]\nweight = 5\n[class.tp]\nweight = 6\n"), {}).take();
  // "dp.x" is another class, whose keys begin alike.
  config.classes["dp.x"].weight = 7;
  config.origins["class.dp.x.weight"] = "hdtctl";
  const auto changed = daemon::with_live_class(config, configured, "dp", live);
  if (changed.is_ok()) {
    // Only the class has changed, and it says where from.
    check(changed.value());
    HDT_HOLDS(changed.value().classes.size() == 2 && changed.value().node.name == "n0");
    HDT_HOLDS(changed.value().classes.at("dp.x") == config.classes["dp.x"] &&
              changed.value().origins.at("class.dp.x.weight") == "hdtctl");
    HDT_HOLDS(changed.value().origins.contains("class.dp.weight") &&
              !changed.value().origins.contains("class.tp.weight"));
  }
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

// Lines "NAME=VALUE": the environment of a daemon, of which those that begin with HDT_ count. The file has
// the classes "dp" and "d.p"; a variable names the latter as it would name "d_p". HDT_CONFIG names this file.
bool take_environment(std::span<const std::byte> input) {
  for (const auto& [name, value] : config_environment()) HDT_HOLDS(::unsetenv(name.c_str()) == 0);
  const Bytes text = fuzz::to_bytes("[class.dp]\n[class.\"d.p\"]\n");
  const fuzz::MemoryFile file(text);
  std::vector<std::string> names;
  for (const auto& [line_name, value] : daemon::parse_settings(fuzz::to_text(input))) {
    const std::string name(line_name.c_str());  // without zero bytes, as execve() takes it
    if (!name.starts_with("HDT_")) continue;
    const bool names_file = name == "HDT_CONFIG";
    HDT_HOLDS(::setenv(name.c_str(), names_file ? file.path().c_str() : value.c_str(), 1) == 0);
    names.push_back(name);
  }
  ConfigSources sources;
  sources.environment = config_environment();
  sources.system_file = "/proc/self/fd/none";
  HDT_HOLDS(sources.environment.size() <= names.size());
  for (const std::string& name : names) HDT_HOLDS(::unsetenv(name.c_str()) == 0);
  HDT_HOLDS(config_environment().empty());
  for (const auto& read : {load_config(sources), load(text, {}, sources.environment)}) {
    if (!read.is_ok()) {
      HDT_HOLDS(read.status().code() == Code::kConfig && !read.status().message().empty());
      return false;
    }
    check(read.value());
  }
  return !names.empty();
}

bool take(std::span<const std::byte> input) {
  Choices choices(input);
  switch (choices.get<uint8_t>() % 4) {
    case 0:
      return take_file(choices.rest());
    case 1:
      return take_settings(choices.rest());
    case 2:
      return take_flags(choices.rest());
    default:
      return take_environment(choices.rest());
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
  return {
      text_seed(0, print_config(config)),
      text_seed(0,
                "[nics]\nport = 0\nuse = [\"eth*\"]\n[class.default]\nbackends = [\"rdma\", \"tcp\"]\n"
                "[backend.ucx]\ntls = true\nlevel = 3\nname = \"x\"\n[node]\nthreads = \"auto\"\n"
                "[security]\ninsecure = true\nnodes_file = \"/\u00e9\u20ac\U0001f600\"\n"),
      text_seed(1, "class.dp.weight=3\nclass.dp.nics=eth1,eth2"),
      text_seed(2, "--node.socket\n/tmp/a.sock\n--class.dp.weight=3\nother"),
      text_seed(2, "--security.insecure=1\n--nics.use= eth0 ,eth1\n--nics.exclude= \n--node.threads=auto"),
      text_seed(3,
                "HDT_CONFIG=\nHDT_NODE_NAME=n0\nHDT_NODE_THREADS=2\nHDT_SECURITY_INSECURE=false\nHDT_RANK=3\n"
                "HDT_BACKEND_UCX_TLS=tcp\nHDT_CLASS_DP_WEIGHT=3\nHDT_CLASS_NEW_NICS=eth1\nHDT_CLASS_D_P_"
                "PRIORITY=latency")};
}

std::vector<Bytes> spoilt() {
  const std::string long_text(2000, 'x');
  std::string list = "\"a\"", options;
  for (int i = 0; i < 300; ++i) {
    list += ", \"a\"";
    options += "k" + std::to_string(i) + " = 1\n";
  }
  std::vector<Bytes> all;
  // Files.
  for (const std::string& text :
       std::initializer_list<std::string>{"[node",
                                          "port = 1\n",
                                          "[nobody]\n",
                                          "[nobody]\nkey = 1\n",
                                          "[node]\nnam = \"n0\"\n",
                                          "[class]\nweight = 3\n",
                                          "[class.\"\"]\n",
                                          "[class." + long_text + "]\nweight = 3\n",
                                          "[class.\"d\\n\"]\n",
                                          "[class.dp]\nweigh = 3\n",
                                          "[class.dp]\nweight = 1001\n",
                                          "[class.dp]\nweight = 1.5\n",
                                          "[class.dp]\nweight = \"3\"\n",
                                          "[class.dp]\nweight = [\"3\"]\n",
                                          "[class.dp]\nweight = {}\n",
                                          "[class.dp]\nweight = 2026-11-27\n",
                                          "[class.dp]\nweight = 2026-11-27T10:00:00Z\n",
                                          "[class.dp]\nweight = 10:00:00\n",
                                          "[class.dp]\nbackends = [1]\n",
                                          "[class.dp]\nbackends = [true]\n",
                                          "[class.dp]\nbackends = [[]]\n",
                                          "[class.dp]\nbackends = [\"a\", {}]\n",
                                          "[class.dp]\nbackends = []\n",
                                          "[class.dp]\nbackends = [\"/\"]\n",
                                          "[class.dp]\nbackends = \"tcp\"\n",
                                          "[nics]\nuse = [" + list + "]\n",
                                          "[node]\nname = 1\n",
                                          "[node]\nname = true\n",
                                          "[node]\nsocket = \"a\"\n",
                                          "[node]\nsocket = \"/\\u0001\"\n",
                                          "[node]\nsocket = \"" + long_text + "\"\n",
                                          "[node]\nthreads = \"none\"\n",
                                          "[security]\ninsecure = 1\n",
                                          "[backend]\ntls = true\n",
                                          "[backend.\"/\"]\ntls = true\n",
                                          "[backend.ucx]\n\"t=\" = true\n",
                                          "[backend.ucx]\ntls = 1.5\n",
                                          "[backend.ucx]\ntls = []\n",
                                          "[backend.ucx]\ntls = \"" + long_text + "\"\n",
                                          "[backend.ucx]\ntls = \"\\u0001\"\n",
                                          "[backend.ucx]\n" + options,
                                          "[a]\na = " + std::string(100, '[') + "\n"})
    all.push_back(text_seed(0, text));
  // Settings, with every way to break UTF-8 in a name: a byte that leads nothing, a character that is cut,
  // one that is overlong, half of a pair, one beyond the last.
  for (const std::string& text : std::initializer_list<std::string>{
           "weight", "class.dp.weight", "class.dp.weight=x", "class.dp.weight=9999999999999999999999",
           "class.dp.\xff=1", "class.dp.\xc3=1", "class.dp.\xc3x=1", "class.dp.\xe0\x80\x80=1",
           "class.dp.\xed\xa0\x80=1", "class.dp.\xf4\x90\x80\x80=1", "class..weight=1", "class.dp.nics=,",
           "class.tp.weight=3\nnode.threads=x"})
    all.push_back(text_seed(1, text));
  // Flags.
  for (const std::string& text : std::initializer_list<std::string>{
           "--node.name", "--node.name=", "--security.insecure=maybe", "--node.threads=1x", "other"})
    all.push_back(text_seed(2, text));
  // Variables.
  for (const std::string& text : std::initializer_list<std::string>{
           "PATH=/", "HDT_NODE_NAM=n0", "HDT_NODE_NAME=", "HDT_CLASS_DP_WEIGHT=0", "HDT_CLASS_DP_WEIGH=1",
           "HDT_BACKEND_=1", "HDT_BACKEND_UCX_T/=1"})
    all.push_back(text_seed(3, text));
  return all;
}

HDT_FUZZ_TARGET(config, take, seeds, spoilt)

}  // namespace hdt::fuzz_config
