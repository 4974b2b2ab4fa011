// config_keys.h: the table of configuration keys that file, environment, flags, print-out and reference all
// read.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/config.h"

namespace hdt::config {

template <typename T>
using Field = T& (*)(Config& config, const std::string& class_name);

struct Key {
  const char* section;
  const char* name;
  // Where the value lives; its type is the type of the key.
  std::variant<Field<std::string>, Field<int64_t>, Field<bool>, Field<std::vector<std::string>>> field;
  // Limits: of an integer's value, of a text's bytes, of a list's entries.
  int64_t lowest;
  int64_t highest;
  bool (*valid)(const std::string&);  // of a text or a list's entry; may be null
  bool automatic;                     // an integer that may also be "auto", kept as 0
  const char* expected;
  const char* help;
};

inline constexpr char kClassSection[] = "class";
// Its keys are the backends', so the table has none of them.
inline constexpr char kBackendSection[] = "backend";
inline constexpr size_t kMaxBackendOptions = 256;
inline constexpr size_t kMaxClassNameBytes = 31;

std::span<const Key> keys();
// Null if there is none.
const Key* find_key(const std::string& section, const std::string& name);
bool is_section(const std::string& section);

// "node.socket", "class.dp.backends"; the HDT_ variable of the same ("HDT_CLASS_DP_BACKENDS").
std::string full_name(const std::string& section, const std::string& class_name, const std::string& key);
std::string variable_name(const std::string& full_name);

// 1 to 31 small letters, digits, '-' and '_', a letter first.
bool is_backend_name(const std::string& text);

// "; did you mean node.socket?" when a key is near enough to what was written, else "".
std::string suggestion(const std::string& section, const std::string& class_name, const std::string& key);

// A value as its source gave it.
struct Untyped {
  std::string text;  // a flag or a variable: lists are separated by commas
};
struct Foreign {
  std::string type;  // a TOML type that no key has, e.g. "a date or time"
};
using RawValue = std::variant<Untyped, std::string, int64_t, bool, std::vector<std::string>, Foreign>;

// One assignment from any source. An empty key declares the class without setting anything.
struct Entry {
  std::string section;
  std::string class_name;  // or that of a backend
  std::string key;
  RawValue value;
  std::string origin;  // "/etc/hdt/hdtcommd.toml:3", "environment HDT_NODE_SOCKET", "flag --node.socket"
};

// Checks the entry against the table and stores it.
Status apply(const Entry& entry, Config& config);

// All entries of a TOML file, in its order.
Result<std::vector<Entry>> read_config_file(const std::string& path);

// A value in TOML's syntax.
std::string toml_text(const Key& key, Config& config, const std::string& class_name);
std::string toml_quoted(const std::string& text);

}  // namespace hdt::config
