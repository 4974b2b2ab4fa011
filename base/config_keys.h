// config_keys.h: the table of configuration keys, and the assignments that are checked against it. The
// file, the environment, flags, print-out and reference all read this table, so they cannot disagree.
// Internal to the configuration: other parts include config.h.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/config.h"

namespace hdt::config {

// Finds the place of a value in a Config. `class_name` is used by keys of [class.NAME] only, which make
// the class if it is not there yet.
template <typename T>
using Field = T& (*)(Config& config, const std::string& class_name);

// One row of the table: a key of a section, with everything that sources and printers need of it.
struct Key {
  const char* section;
  const char* name;
  // Where the value lives. The alternative that is held is the type of the key.
  std::variant<Field<std::string>, Field<int64_t>, Field<bool>, Field<std::vector<std::string>>> field;
  // Limits, both included: of an integer's value, of a text's length in bytes, of a list's number of
  // entries.
  int64_t lowest;
  int64_t highest;
  bool (*valid)(const std::string&);  // of a text or a list's entry; null: any plain text
  bool automatic;                     // an integer that may also be "auto", which is kept as 0
  const char* expected;               // for errors and the reference: "an integer 1..64"
  const char* help;                   // for the reference: what the key means
};

// The two sections whose tables have a name of their own: [class.NAME] and [backend.NAME].
inline constexpr char kClassSection[] = "class";
// The keys of [backend.NAME] belong to the backend, so the table has none of them.
inline constexpr char kBackendSection[] = "backend";
inline constexpr size_t kMaxBackendOptions = 256;  // for each backend
inline constexpr size_t kMaxClassNameBytes = 31;   // also the limit of a backend's name

// The table. Keys of a section are consecutive, which print_config() relies on.
std::span<const Key> keys();
// The row of a key; null if there is none.
const Key* find_key(const std::string& section, const std::string& name);
// Whether a section of this name exists; kBackendSection does, too.
bool is_section(const std::string& section);

// The name of a key in messages and flags: "node.socket", "class.dp.backends". Empty parts are left out.
std::string full_name(const std::string& section, const std::string& class_name, const std::string& key);
// The HDT_ variable of a full name: "class.dp.backends" is HDT_CLASS_DP_BACKENDS. Everything but letters
// and digits becomes '_', so two names may have the same variable.
std::string variable_name(const std::string& full_name);

// Whether a text may name a backend: 1 to 31 small letters, digits, '-' and '_', a letter first.
bool is_backend_name(const std::string& text);

// "; did you mean node.socket?" if a key is near enough to what was written, else "". To be appended to
// an error about an unknown key.
std::string suggestion(const std::string& section, const std::string& class_name, const std::string& key);

// A value without a type: the text of a flag or of a variable. Whether it is an integer, a boolean or a
// list is decided by the key. Lists are separated by commas.
struct Untyped {
  std::string text;
};
// A value of a TOML type that no key has. It is kept so that the error can name the type.
struct Foreign {
  std::string type;  // e.g. "a date or time"
};
// A value as its source gave it. The file gives typed ones, environment and flags give Untyped ones.
using RawValue = std::variant<Untyped, std::string, int64_t, bool, std::vector<std::string>, Foreign>;

// One assignment from any source. An entry with an empty key declares the class or the backend without
// setting anything, so that an empty [class.NAME] has a section.
struct Entry {
  std::string section;
  std::string class_name;  // of [class.NAME] or [backend.NAME], else empty
  std::string key;
  RawValue value;
  std::string origin;  // "/etc/hdt/hdtcommd.toml:3", "environment HDT_NODE_SOCKET", "flag --node.socket"
};

// Checks the entry against the table and stores it, with its origin. kConfig: unknown section or key, or
// a value that does not fit; the key then keeps its value.
Status apply(const Entry& entry, Config& config);

// All entries of a TOML file. kConfig: it cannot be read, is larger than 1 MiB, is no TOML, or has
// values where sections belong. Keys and values are not checked here.
Result<std::vector<Entry>> read_config_file(const std::string& path);

// The value of a key in `config` in TOML's syntax. `config` is not changed, but for a class that was not
// there.
std::string toml_text(const Key& key, Config& config, const std::string& class_name);
// A text in quotation marks, escaped as TOML wants it. The text must not hold control characters;
// apply() stores none.
std::string toml_quoted(const std::string& text);

}  // namespace hdt::config
