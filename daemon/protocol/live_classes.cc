// live_classes.cc: text to settings and back. See live_classes.h.
#include "daemon/protocol/live_classes.h"

#include <algorithm>
#include <set>

namespace hdt::daemon {

namespace {

// The class in "class.NAME.KEY". The name of a class may hold dots, that of a key holds none.
std::string class_of(const std::string& key) {
  const size_t begin = key.find('.') + 1;
  return key.substr(begin, key.rfind('.') - begin);
}

// Whether the name is that of a key of this class. "class.dp.x.nics" begins like a key of "dp", but is one of
// the class "dp.x".
bool is_of(const std::string& key, const std::string& group_class) {
  const std::string prefix = "class." + group_class + ".";
  return key.starts_with(prefix) && key.find('.', prefix.size()) == std::string::npos;
}

}  // namespace

// Never fails: a line that is no setting becomes a key that override_config() does not know, and it has the
// better error message.
ConfigPairs parse_settings(const std::string& lines) {
  ConfigPairs pairs;
  for (size_t begin = 0; begin < lines.size();) {
    const size_t end = std::min(lines.find('\n', begin), lines.size());
    const std::string line = lines.substr(begin, end - begin);
    // Without '=' the whole line is the key, and its value is empty.
    const size_t equals = std::min(line.find('='), line.size());
    pairs.emplace_back(line.substr(0, equals), line.substr(std::min(equals + 1, line.size())));
    begin = end + 1;
  }
  return pairs;
}

// Version 0 and no settings: the class is as in this node's file.
LiveClass LiveClasses::of(const std::string& group_class) const {
  const auto found = classes_.find(group_class);
  return found == classes_.end() ? LiveClass{} : found->second;
}

// Only the latest value of a key is kept, so the text cannot grow with the number of changes.
void LiveClasses::changed(const std::string& settings) {
  std::set<std::string> touched;
  for (const auto& [key, value] : parse_settings(settings)) {
    LiveClass& live = classes_[class_of(key)];
    // Several keys of one class are one change, so the class's version grows once.
    if (touched.insert(class_of(key)).second) ++live.version;
    // The class's lines without this key, and then the key's new value as the last line.
    std::string lines;
    for (const auto& [old_key, old_value] : parse_settings(live.settings)) {
      if (old_key != key) lines.append(old_key).append("=").append(old_value).append("\n");
    }
    live.settings = lines.append(key).append("=").append(value);
  }
}

// Only the classes that are in the map have ever changed. Each stays there, with empty settings, so that
// its version keeps growing.
void LiveClasses::as_configured() {
  for (auto& [name, live] : classes_) live = {live.version + 1, ""};
}

// Where each value was set, for error messages and --print-config. They follow their values.
void take_origins(Config& config, const Config& from, const std::optional<std::string>& group_class) {
  const auto concerns = [&group_class](const auto& origin) {
    return group_class ? is_of(origin.first, *group_class) : origin.first.starts_with("class.");
  };
  std::erase_if(config.origins, concerns);
  for (const auto& origin : from.origins) {
    if (concerns(origin)) config.origins[origin.first] = origin.second;
  }
}

// The result is complete, so a caller that fails later has changed nothing.
Result<Config> with_live_class(const Config& now, const Config& configured, const std::string& group_class,
                               const LiveClass& live) {
  // Start from the file's settings, not from those in `now`: live.settings holds all differences from the
  // file.
  Config config = now;
  config.classes.erase(group_class);
  if (const auto known = configured.classes.find(group_class); known != configured.classes.end())
    config.classes[group_class] = known->second;
  take_origins(config, configured, group_class);
  const ConfigPairs settings = parse_settings(live.settings);
  // Foreign: another node may change this class only.
  if (!std::all_of(settings.begin(), settings.end(),
                   [&](const auto& s) { return is_of(s.first, group_class); })) {
    return Status(Code::kInvalidArgument,
                  "another node sent settings of class " + group_class + " with keys outside of it");
  }
  HDT_RETURN_IF_ERROR(override_config(config, settings, "hdtctl class set on another node"));
  return config;
}

}  // namespace hdt::daemon
