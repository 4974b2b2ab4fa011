// config_apply.cc: checks one assignment against the table of keys and stores it. This is the only place
// that writes a Config, so every source obeys the same limits, and every error has the same form:
// "PLACE: KEY: expected ..., found ...".
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/config_keys.h"
#include "base/foreign_text.h"
#include "base/join.h"
#include "base/whole_number.h"

namespace hdt::config {
namespace {

constexpr size_t kMaxOptionBytes = 1024;  // of a backend's option

// The value as an error shows it. A value may be foreign and huge, so control characters and long texts are
// described instead of printed.
std::string found(const RawValue& value) {
  struct Visitor {
    std::string operator()(const Untyped& v) const { return (*this)(v.text); }
    std::string operator()(const std::string& v) const {
      if (!is_plain_text(v)) return "text with control characters or broken UTF-8";
      if (v.size() > 128) return fmt::format("a text of {} bytes", v.size());
      return toml_quoted(v);
    }
    std::string operator()(int64_t v) const { return std::to_string(v); }
    std::string operator()(bool) const { return "a boolean"; }
    std::string operator()(const std::vector<std::string>& v) const {
      // Long lists are described, too.
      if (v.size() > 8) return fmt::format("a list of {} entries", v.size());
      return "[" + join(v, ", ", *this) + "]";
    }
    std::string operator()(const Foreign& v) const { return v.type; }
  };
  return std::visit(Visitor{}, value);
}

// The entries of a list in a flag or a variable: separated by commas, blanks around them removed. Blank
// text is the empty list; otherwise every comma makes an entry, also an empty one, which the key's check
// may refuse.
std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> entries;
  if (text.find_first_not_of(" \t") == std::string::npos) return entries;
  for (size_t begin = 0; begin <= text.size();) {
    // One entry, without the blanks around it.
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string entry = text.substr(begin, end - begin);
    const size_t first = entry.find_first_not_of(" \t");
    entries.push_back(
        first == std::string::npos ? "" : entry.substr(first, entry.find_last_not_of(" \t") - first + 1));
    begin = end + 1;
  }
  return entries;
}

// Compares a value or a size with the limits of the key.
bool within(const Key& key, int64_t value) { return value >= key.lowest && value <= key.highest; }

bool is_valid_text(const Key& key, const std::string& text) {
  return is_plain_text(text) && (key.valid == nullptr || key.valid(text));
}

// One store() for each type of key. Each returns whether the value fits the key, and writes `field` only
// then.
bool store(const Key& key, const RawValue& raw, std::string& field) {
  const auto* untyped = std::get_if<Untyped>(&raw);
  const auto* text = untyped != nullptr ? &untyped->text : std::get_if<std::string>(&raw);
  if (text == nullptr || !within(key, static_cast<int64_t>(text->size())) || !is_valid_text(key, *text))
    return false;
  field = *text;
  return true;
}

// An integer: typed, or as decimal text without blanks.
bool store(const Key& key, const RawValue& raw, int64_t& field) {
  int64_t value = 0;
  const auto* untyped = std::get_if<Untyped>(&raw);
  const auto* text = untyped != nullptr ? &untyped->text : std::get_if<std::string>(&raw);
  // "auto" may be typed or not.
  if (key.automatic && text != nullptr && *text == "auto") {
    field = kThreadsAuto;
    return true;
  }
  if (untyped != nullptr) {
    const auto number = whole_number<int64_t>(*text);
    if (!number) return false;
    value = *number;
  } else if (const auto* integer = std::get_if<int64_t>(&raw)) {
    value = *integer;
  } else {
    return false;
  }
  if (!within(key, value)) return false;
  field = value;
  return true;
}

// A boolean: typed, or true, false, 1 or 0 in a variable or a flag.
bool store(const Key&, const RawValue& raw, bool& field) {
  if (const auto* given = std::get_if<bool>(&raw)) {
    field = *given;
    return true;
  }
  // A variable or a flag; the usual ways to write one.
  const auto* untyped = std::get_if<Untyped>(&raw);
  if (untyped == nullptr) return false;
  const bool yes = untyped->text == "true" || untyped->text == "1";
  if (!yes && untyped->text != "false" && untyped->text != "0") return false;
  field = yes;
  return true;
}

// A list of texts: typed, or text with commas. Every entry must pass the key's check.
bool store(const Key& key, const RawValue& raw, std::vector<std::string>& field) {
  std::vector<std::string> value;
  if (const auto* untyped = std::get_if<Untyped>(&raw)) {
    value = split_list(untyped->text);
  } else if (const auto* list = std::get_if<std::vector<std::string>>(&raw)) {
    value = *list;
  } else {
    return false;
  }
  const auto fits = [&key](const std::string& entry) { return is_valid_text(key, entry); };
  if (!within(key, static_cast<int64_t>(value.size())) || !std::all_of(value.begin(), value.end(), fits))
    return false;
  field = std::move(value);
  return true;
}

// The error for an entry. A name with broken UTF-8 or control characters is not printed.
Status fail(const Entry& entry, const std::string& what) {
  const std::string name = full_name(entry.section, entry.class_name, entry.key);
  return {Code::kConfig, fmt::format("{}: {}: {}", entry.origin, is_plain_text(name) ? name : "a key", what)};
}

// A key of [backend.NAME]: any value but a list, kept as text. The limits of size and number keep a
// foreign file from filling memory; what the key means is for the backend to check.
Status apply_backend(const Entry& entry, Config& config) {
  if (!is_backend_name(entry.class_name)) {
    return fail(entry, "expected [backend.NAME] with the name of a backend, e.g. [backend.rdma]");
  }
  auto& options = config.backends[entry.class_name];
  // An empty key only declares the section, which operator[] has made.
  if (entry.key.empty()) return Status::ok();
  // The name of the key is foreign, too: it is printed, and stands in a variable's name.
  const bool plain = std::all_of(entry.key.begin(), entry.key.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '-' || c == '_';
  });
  if (!plain) return fail(entry, "expected a key of letters, digits, '-' and '_'");
  std::string text;
  if (const auto* untyped = std::get_if<Untyped>(&entry.value)) {
    text = untyped->text;
  } else if (const auto* given = std::get_if<std::string>(&entry.value)) {
    text = *given;
  } else if (const auto* integer = std::get_if<int64_t>(&entry.value)) {
    text = std::to_string(*integer);
  } else if (const auto* truth = std::get_if<bool>(&entry.value)) {
    text = *truth ? "true" : "false";
  } else {
    return fail(entry, "expected a text, an integer or a boolean, found " + found(entry.value));
  }
  if (!is_plain_text(text) || text.size() > kMaxOptionBytes) {
    return fail(entry, fmt::format("expected a text of at most {} bytes, found {}", kMaxOptionBytes,
                                   found(entry.value)));
  }
  if (options.size() >= kMaxBackendOptions && !options.contains(entry.key)) {
    return fail(entry, fmt::format("expected at most {} keys for a backend", kMaxBackendOptions));
  }
  options[entry.key] = text;
  config.origins[full_name(entry.section, entry.class_name, entry.key)] = entry.origin;
  return Status::ok();
}

}  // namespace

// Steps: find the kind of section, find the key, store the value by its type, note its origin.
Status apply(const Entry& entry, Config& config) {
  if (entry.section == kBackendSection) return apply_backend(entry, config);
  const bool of_class = entry.section == kClassSection;
  if (of_class && (entry.class_name.empty() || entry.class_name.size() > kMaxClassNameBytes ||
                   !is_plain_text(entry.class_name))) {
    return fail(entry, fmt::format("expected [class.NAME] with a NAME of 1 to {} bytes", kMaxClassNameBytes));
  }
  if (of_class && entry.key.empty()) {
    config.classes[entry.class_name];
    return Status::ok();
  }
  const Key* key = find_key(entry.section, entry.key);
  if (key == nullptr) {
    const char* kind = is_section(entry.section) ? "unknown key" : "unknown section";
    return fail(entry, kind + suggestion(entry.section, entry.class_name, entry.key));
  }
  // The accessor's type selects the store() for the key. For a class it makes the class, if it is new.
  const bool stored = std::visit(
      [&](auto field) { return store(*key, entry.value, field(config, entry.class_name)); }, key->field);
  if (!stored) return fail(entry, fmt::format("expected {}, found {}", key->expected, found(entry.value)));
  config.origins[full_name(entry.section, entry.class_name, entry.key)] = entry.origin;
  return Status::ok();
}

}  // namespace hdt::config
