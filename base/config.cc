// config.cc: combines the sources: the file, then the environment, then flags. Each source is turned into
// assignments (config::Entry), which config_apply.cc checks and stores; a later assignment overwrites an
// earlier one. The class and NIC questions that other layers ask of a Config are here, too.
#include "base/config.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <optional>
#include <set>

#include "base/config_keys.h"
#include "base/host_name.h"

extern char** environ;

namespace hdt {
namespace {

// "node.socket" or "class.NAME.key". A class name may hold dots itself, so the section ends at the first
// dot and the key begins after the last one.
config::Entry split_name(const std::string& name) {
  config::Entry entry;
  const size_t first = name.find('.');
  const size_t last = name.rfind('.');
  entry.section = name.substr(0, first);
  if (last != std::string::npos) entry.key = name.substr(last + 1);
  if (first != last) entry.class_name = name.substr(first + 1, last - first - 1);
  return entry;
}

// The classes that a variable HDT_CLASS_<NAME>_<KEY> means, by `middle`, its <NAME>. Capitals and '_' do
// not tell how the name was written, so all classes of the file with that spelling in capitals are
// meant. If there is none, the variable makes a new class with the name in small letters.
std::set<std::string> classes_of(const std::string& middle, const Config& config) {
  std::set<std::string> names;
  for (const auto& [name, unused] : config.classes) {
    if (config::variable_name(name) == "HDT_" + middle) names.insert(name);
  }
  if (names.empty()) {
    std::string lower = middle;
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return std::tolower(c); });
    names.insert(lower);
  }
  return names;
}

// HDT_BACKEND_<NAME>_<KEY>, both in small letters. The name ends at the first '_', so a backend whose
// name holds one has to be set in the file or by a flag. Nothing if the variable is of another section.
std::optional<config::Entry> backend_entry(const std::string& variable, const std::string& value) {
  const std::string prefix = config::variable_name(std::string(config::kBackendSection) + ".");
  if (!variable.starts_with(prefix)) return std::nullopt;
  std::string rest = variable.substr(prefix.size());
  std::transform(rest.begin(), rest.end(), rest.begin(), [](unsigned char c) { return std::tolower(c); });
  const size_t cut = std::min(rest.find('_'), rest.size());
  return config::Entry{config::kBackendSection, rest.substr(0, cut),
                       rest.substr(std::min(cut + 1, rest.size())), config::Untyped{value},
                       "environment " + variable};
}

// Applies one HDT_ variable. Steps: a key of a backend; a key of the table; a misspelt key of one of our
// sections, which is an error; anything else is not ours.
Status apply_variable(const std::string& variable, const std::string& value, Config& config) {
  if (const auto entry = backend_entry(variable, value)) return apply(*entry, config);
  // Each key of the table is compared by its variable's name.
  for (const config::Key& key : config::keys()) {
    const std::string section = key.section;
    config::Entry entry{section, "", key.name, config::Untyped{value}, "environment " + variable};
    if (section != config::kClassSection) {
      if (variable == config::variable_name(config::full_name(section, "", key.name)))
        return apply(entry, config);
      continue;
    }
    // A class key has the name of the class between prefix and suffix.
    const std::string prefix = config::variable_name(section + ".");
    const std::string suffix = config::variable_name(key.name).substr(3);  // "_BACKENDS"
    if (variable.size() <= prefix.size() + suffix.size() || !variable.starts_with(prefix) ||
        !variable.ends_with(suffix)) {
      continue;
    }
    const std::string middle =
        variable.substr(prefix.size(), variable.size() - prefix.size() - suffix.size());
    for (const std::string& name : classes_of(middle, config)) {
      entry.class_name = name;
      HDT_RETURN_IF_ERROR(apply(entry, config));
    }
    return Status::ok();
  }
  // A variable that begins like one of our sections is meant for us, so a misspelt one is reported and not
  // ignored. Other HDT_ variables, such as HDT_RANK, are read elsewhere.
  for (const config::Key& key : config::keys()) {
    const std::string prefix = config::variable_name(std::string(key.section) + ".");
    if (!variable.starts_with(prefix)) continue;
    std::string rest = variable.substr(prefix.size());
    std::transform(rest.begin(), rest.end(), rest.begin(), [](unsigned char c) { return std::tolower(c); });
    return {Code::kConfig, fmt::format("environment {}: unknown key{}", variable,
                                       config::suggestion(key.section, "", rest))};
  }
  return Status::ok();
}

// The file that was named by flag, else by $HDT_CONFIG, else the system's file if it exists, else none ("").
std::string chosen_file(const ConfigSources& sources) {
  if (!sources.file.empty()) return sources.file;
  for (const auto& [name, value] : sources.environment) {
    if (name == "HDT_CONFIG" && !value.empty()) return value;
  }
  return access(sources.system_file.c_str(), F_OK) == 0 ? sources.system_file : "";
}

}  // namespace

ClassConfig Config::class_named(const std::string& name) const {
  // The own section beats that of "default" as a whole; the two are not merged key by key.
  for (const std::string& candidate : {name, std::string("default")}) {
    const auto found = classes.find(candidate);
    if (found != classes.end()) return found->second;
  }
  return {};
}

LogLevel Config::log_level() const { return parse_log_level(log.level).value_or(LogLevel::kInfo); }

// `environ` is read without a lock, so nothing may change the environment at the same time.
ConfigPairs config_environment() {
  ConfigPairs pairs;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string text = *entry;
    // A variable without '=' cannot be set by a shell, but by execve(); it is skipped.
    const size_t equals = text.find('=');
    if (text.starts_with("HDT_") && equals != std::string::npos) {
      pairs.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  }
  return pairs;
}

Result<ConfigPairs> take_config_flags(std::vector<std::string>& arguments) {
  ConfigPairs pairs;
  std::vector<std::string> others;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    if (!flag.starts_with("--") || flag.find('.') == std::string::npos) {
      // Not ours: it has no dot, or is no flag.
      others.push_back(argument);
    } else if (equals != std::string::npos) {
      pairs.emplace_back(flag.substr(2), argument.substr(equals + 1));
    } else if (i + 1 < arguments.size()) {
      pairs.emplace_back(flag.substr(2), arguments[++i]);
    } else {
      return Status(Code::kConfig, fmt::format("flag {}: expected a value after it", flag));
    }
  }
  arguments = std::move(others);
  return pairs;
}

Result<Config> load_config(const ConfigSources& sources) {
  // The three sources in turn, each on top of what the earlier ones have set.
  Config config;
  const std::string file = chosen_file(sources);
  if (!file.empty()) {
    Result<std::vector<config::Entry>> entries = config::read_config_file(file);
    if (!entries.is_ok()) return entries.status();
    for (const config::Entry& entry : entries.value()) HDT_RETURN_IF_ERROR(apply(entry, config));
  }
  for (const auto& [variable, value] : sources.environment) {
    HDT_RETURN_IF_ERROR(apply_variable(variable, value, config));
  }
  for (const auto& flag : sources.flags) {
    HDT_RETURN_IF_ERROR(override_config(config, {flag}, "flag --" + flag.first));
  }
  // The default of node.name is known only here; it has no origin, so print_config() calls it a default.
  if (config.node.name.empty()) config.node.name = host_name();
  return config;
}

Status override_config(Config& config, const ConfigPairs& settings, const std::string& origin) {
  for (const auto& [name, value] : settings) {
    config::Entry entry = split_name(name);
    if (entry.key.empty()) return {Code::kConfig, fmt::format("{}: '{}' names no key", origin, name)};
    entry.value = config::Untyped{value};
    entry.origin = origin;
    HDT_RETURN_IF_ERROR(apply(entry, config));
  }
  return Status::ok();
}

bool matches_any(const std::vector<std::string>& patterns, const std::string& text) {
  return std::any_of(patterns.begin(), patterns.end(), [&text](const std::string& pattern) {
    return fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
  });
}

// A name that stands in `use` as it is beats `exclude`, so nobody has to empty `exclude` to get "docker0".
bool nic_selected(const Config::Nics& nics, const std::string& name) {
  if (std::find(nics.use.begin(), nics.use.end(), name) != nics.use.end()) return true;
  return matches_any(nics.use, name) && !matches_any(nics.exclude, name);
}

int engine_threads(const Config& config, int nics, int usable_cores) {
  if (config.node.threads != kThreadsAuto) return static_cast<int>(config.node.threads);
  // Rounded up, so that one NIC has a thread.
  constexpr int kNicsPerThread = 8;
  return std::max(1, std::min((nics + kNicsPerThread - 1) / kNicsPerThread, usable_cores / 2));
}

}  // namespace hdt
