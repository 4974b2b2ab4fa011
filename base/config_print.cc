// config_print.cc: the configuration as TOML and the reference documentation, both generated from the
// table of keys.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/config_keys.h"
#include "base/join.h"

namespace hdt {
namespace config {

// Only quotes and backslashes need escapes, because apply() stores no control characters.
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
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(const std::vector<std::string>& v) const {
      return "[" + join(v, ", ", toml_quoted) + "]";
    }
  };
  return std::visit([&](auto field) { return Visitor{key}(field(config, class_name)); }, key.field);
}

namespace {

// The name of a class as a part of a TOML key. It may hold any characters; TOML wants quotes around all
// but letters, digits, '-' and '_'.
std::string key_part(const std::string& name) {
  const bool bare = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || c == '-' || c == '_');
  });
  return bare ? name : toml_quoted(name);
}

// Where a value came from, for the comment behind it. The origin may be a path with a line's end in its
// name, which would end the comment, so control characters are replaced.
std::string origin_of(const Config& config, const std::string& name) {
  const auto origin = config.origins.find(name);
  std::string place = origin == config.origins.end() ? "default" : origin->second;
  std::replace_if(
      place.begin(), place.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return place;
}

// Appends one section with all its keys. `class_name` is empty but for [class.NAME].
void print_section(Config& config, const std::string& section, const std::string& class_name,
                   std::string& out) {
  out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n",
                     full_name(section, class_name.empty() ? "" : key_part(class_name), ""));
  for (const Key& key : keys()) {
    if (section != key.section) continue;
    out += fmt::format("{} = {}  # {}\n", key.name, toml_text(key, config, class_name),
                       origin_of(config, full_name(section, class_name, key.name)));
  }
}

}  // namespace
}  // namespace config

// Order: the sections of the table, then the classes, then the backends, each of these by name.
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
  // Backends' keys are texts that the table does not know. Names and keys need no quotes, as apply() has
  // checked.
  for (const auto& [name, options] : config.backends) {
    out += fmt::format("\n[{}]\n", config::full_name(config::kBackendSection, name, ""));
    for (const auto& [key, value] : options) {
      out += fmt::format("{} = {}  # {}\n", key, config::toml_quoted(value),
                         config::origin_of(config, config::full_name(config::kBackendSection, name, key)));
    }
  }
  return out;
}

// A table for each section. The defaults are those of a fresh Config, so they cannot differ from the code.
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
  out +=
      "\n## [backend.NAME]\n\nKeys of the backend NAME's own, each a text, an integer or a boolean; the "
      "backend refuses "
      "those that it does not know. As a flag `--backend.NAME.KEY VALUE`, as a variable "
      "`HDT_BACKEND_NAME_KEY` (KEY is "
      "then read in small letters).\n";
  return out;
}

}  // namespace hdt
