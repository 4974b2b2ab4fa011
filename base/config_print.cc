// config_print.cc: the configuration as TOML, and the reference documentation, both from the table of keys.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/config_keys.h"

namespace hdt {
namespace config {

std::string toml_quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

std::string toml_text(const Key& key, Config& config, const std::string& class_name) {
  struct Visitor {
    const Key& key;
    std::string operator()(const std::string& v) const { return toml_quoted(v); }
    std::string operator()(int64_t v) const {
      return key.automatic && v == kThreadsAuto ? "\"auto\"" : std::to_string(v);
    }
    std::string operator()(const std::vector<std::string>& v) const {
      std::string text;
      for (const std::string& entry : v) text += (text.empty() ? "" : ", ") + toml_quoted(entry);
      return "[" + text + "]";
    }
  };
  return std::visit([&](auto field) { return Visitor{key}(field(config, class_name)); }, key.field);
}

namespace {

// Class names may hold any characters; TOML wants quotes around all but the plain ones.
std::string key_part(const std::string& name) {
  const bool bare = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_');
  });
  return bare ? name : toml_quoted(name);
}

void print_section(Config& config, const std::string& section, const std::string& class_name,
                   std::string& out) {
  out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n",
                     full_name(section, class_name.empty() ? "" : key_part(class_name), ""));
  for (const Key& key : keys()) {
    if (section != key.section) continue;
    const auto origin = config.origins.find(full_name(section, class_name, key.name));
    std::string place = origin == config.origins.end() ? "default" : origin->second;
    std::replace_if(
        place.begin(), place.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    out += fmt::format("{} = {}  # {}\n", key.name, toml_text(key, config, class_name), place);
  }
}

}  // namespace
}  // namespace config

std::string print_config(const Config& config) {
  Config copy = config;  // the table's accessors need a mutable one
  std::string out;
  std::string last;
  for (const config::Key& key : config::keys()) {
    if (last == key.section || key.section == std::string(config::kClassSection)) continue;
    last = key.section;
    config::print_section(copy, last, "", out);
  }
  for (const auto& [name, unused] : config.classes)
    config::print_section(copy, config::kClassSection, name, out);
  return out;
}

std::string config_reference() {
  Config defaults;
  std::string out;
  std::string last;
  for (const config::Key& key : config::keys()) {
    const bool of_class = key.section == std::string(config::kClassSection);
    if (last != key.section) {
      last = key.section;
      out += fmt::format(
          "{}## [{}]\n\n| key | default | expected | variable | meaning |\n| --- | --- | --- | --- | --- |\n",
          out.empty() ? "" : "\n", of_class ? "class.NAME" : last);
    }
    const std::string name = config::full_name(key.section, of_class ? "NAME" : "", key.name);
    const bool host_name = name == "node.name";
    const std::string default_text =
        host_name ? "host name"
                  : fmt::format("`{}`", config::toml_text(key, defaults, of_class ? "NAME" : ""));
    out += fmt::format("| `{}` | {} | {} | `{}` | {} |\n", name, default_text, key.expected,
                       config::variable_name(name), key.help);
  }
  return out;
}

}  // namespace hdt
