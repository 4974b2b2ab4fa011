// toml_fields.cc: the strict reading of TOML fields.
#include "training/plan/describe/toml_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/foreign_text.h"
#include "training/data/mapped_file.h"

namespace hdt::plan {
namespace {

// 0 for what is no number, and for an integer that no double has, such as 2^53 + 1: value() has none then.
double number_or_0(const toml::node* node) {
  return node->is_number() ? node->value<double>().value_or(0) : 0;
}

}  // namespace

// Later errors are often consequences of the first one.
void TomlErrors::add(const std::string& where, const std::string& reason) {
  if (first_.is_ok()) first_ = Status(Code::kConfig, fmt::format("{}: {}: {}", file_, where, reason));
}

Result<toml::table> parse_toml_file(const std::string& path) {
  // A missing file is kConfig as well: the user has named it.
  const auto file = training::MappedFile::open(path);
  if (!file.is_ok()) return Status(Code::kConfig, path + ": " + file.status().message());
  const auto bytes = file.value().bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  // A file of another origin may be nested or long enough to exhaust the parser, so limits are checked
  // before it runs.
  if (const Status fits = check_toml_limits(text); !fits.is_ok())
    return Status(Code::kConfig, path + ": " + fits.message());
  toml::parse_result parsed = toml::parse(text, path);
  if (parsed) return std::move(parsed).table();
  const toml::parse_error& error = parsed.error();
  const auto line = error.source().begin.line;
  // The parser's position is 0 if it has none.
  return Status(Code::kConfig, line > 0 ? fmt::format("{}: line {}: {}", path, line, error.description())
                                        : fmt::format("{}: {}", path, error.description()));
}

TomlFields::TomlFields(const toml::table& table, std::string where, TomlErrors& errors)
    : table_(&table), where_(std::move(where)), errors_(&errors) {}

// "replica 2.stage 1.layers: ...".
void TomlFields::fail(const std::string& field, const std::string& reason) {
  errors_->add(where_.empty() ? field : where_ + "." + field, reason);
}

const toml::node* TomlFields::find(const char* field, bool required) {
  read_.insert(field);
  const toml::node* node = table_->get(field);
  if (!node && required) fail(field, "is missing");
  return node;
}

std::string TomlFields::text(const char* field) {
  const toml::node* node = find(field, true);
  if (!node) return {};
  // value_exact() accepts no other type: 5 is not the text "5".
  const std::string value = node->value_exact<std::string>().value_or("");
  if (value.empty()) fail(field, "expected a text that is not empty");
  return value;
}

std::string TomlFields::text_or(const char* field, const char* otherwise) {
  return table_->get(field) ? text(field) : otherwise;
}

bool TomlFields::flag_or(const char* field, bool otherwise) {
  const toml::node* node = find(field, false);
  if (!node) return otherwise;
  const auto value = node->value_exact<bool>();
  if (!value) fail(field, "expected true or false");
  return value.value_or(otherwise);
}

// value() converts integers, so "rate = 5" is as good as "rate = 5.0". TOML also has inf and nan, which
// no field allows.
double TomlFields::number(const char* field, double otherwise, bool required) {
  const toml::node* node = find(field, required);
  if (!node) return otherwise;
  const auto value = node->is_number() ? node->value<double>() : std::nullopt;
  if (!value || !std::isfinite(*value)) {
    fail(field, "expected a finite number that a double can hold");
    return otherwise;
  }
  return *value;
}

// A harmless value takes the place of a wrong one, here and below.
double TomlFields::positive(const char* field) {
  const double value = number(field, 1, true);
  if (value > 0) return value;
  fail(field, fmt::format("{} given, expected more than 0", value));
  return 1;
}

double TomlFields::positive_or(const char* field, double otherwise) {
  return table_->get(field) ? positive(field) : otherwise;
}

std::optional<double> TomlFields::optional_positive(const char* field) {
  if (!table_->get(field)) return std::nullopt;
  return positive(field);
}

double TomlFields::not_negative_or(const char* field, double otherwise) {
  const double value = number(field, otherwise, false);
  if (value < 0) fail(field, fmt::format("{} given, expected at least 0", value));
  return value == 0 ? 0 : value;  // -0 would be written as an integer
}

// `otherwise` without a value: the field is required.
int64_t TomlFields::integer(const char* field, int64_t least, std::optional<int64_t> otherwise) {
  const toml::node* node = find(field, !otherwise);
  if (!node) return otherwise.value_or(least);
  const auto value = node->value_exact<int64_t>();
  if (value && *value >= least) return *value;
  fail(field, value ? fmt::format("{} given, expected at least {}", *value, least) : "expected an integer");
  return least;
}

// Callers may cast the result to int.
int64_t TomlFields::count(const char* field) {
  const int64_t value = integer(field, 1, std::nullopt);
  if (value <= std::numeric_limits<int>::max()) return value;
  fail(field, fmt::format("{} given, expected at most {}", value, std::numeric_limits<int>::max()));
  return 1;
}

int64_t TomlFields::count_or(const char* field, int64_t otherwise) {
  return table_->get(field) ? count(field) : otherwise;
}

std::vector<int> TomlFields::count_or_counts(const char* field) {
  const toml::node* node = table_->get(field);
  const toml::array* list = node ? node->as_array() : nullptr;
  if (!list) return {static_cast<int>(integer(field, 0, std::nullopt))};
  read_.insert(field);
  std::vector<int> values;
  int64_t sum = 0;
  for (const toml::node& entry : *list) {
    const auto value = entry.value_exact<int64_t>();
    // Each value is bounded, and so is the number of values (base/toml.h), so the sum does not overflow.
    if (!value || *value < 0 || *value > std::numeric_limits<int>::max()) {
      fail(field, "expected an integer, or a list of integers, of at least 0");
      return {1};
    }
    sum += *value;
    values.push_back(static_cast<int>(*value));
  }
  if (!values.empty() && sum <= std::numeric_limits<int>::max()) return values;
  fail(field, values.empty() ? "an empty list given, expected at least one integer"
                             : fmt::format("{} given in all, expected at most {}", sum,
                                           std::numeric_limits<int>::max()));
  return {1};
}

std::optional<int64_t> TomlFields::optional_size(const char* field) {
  if (!table_->get(field)) return std::nullopt;
  return integer(field, 0, std::nullopt);
}

int64_t TomlFields::size(const char* field) { return integer(field, 1, std::nullopt); }

std::vector<int64_t> TomlFields::sizes_or_none(const char* field, size_t most) {
  std::vector<int64_t> values;
  const toml::node* node = find(field, false);
  if (!node) return values;
  const toml::array* list = node->as_array();
  // Entries that are no integers become 0, which is refused below.
  for (size_t i = 0; list && i < list->size(); ++i)
    values.push_back(list->get(i)->value_exact<int64_t>().value_or(0));
  if (!list || values.empty() || values.size() > most || *std::ranges::min_element(values) < 1) {
    fail(field, fmt::format("expected a list of 1 to {} integers of at least 1", most));
    values.clear();
  }
  return values;
}

std::vector<std::string> TomlFields::texts(const char* field) {
  std::vector<std::string> values;
  const toml::node* node = find(field, true);
  if (!node) return values;
  const toml::array* list = node->as_array();
  // Entries that are no texts become "", which is refused below.
  for (size_t i = 0; list && i < list->size(); ++i)
    values.push_back(list->get(i)->value_exact<std::string>().value_or(""));
  if (values.empty() || std::ranges::count(values, "") > 0) {
    fail(field, "expected a list of texts that are not empty");
    values.clear();
  }
  return values;
}

std::vector<std::string> TomlFields::texts_or_none(const char* field) {
  if (!table_->get(field)) return {};
  return texts(field);
}

std::vector<std::pair<std::string, const toml::table*>> TomlFields::named_tables(const char* field) {
  std::vector<std::pair<std::string, const toml::table*>> tables;
  const toml::node* node = find(field, false);
  if (!node) return tables;
  const toml::table* all = node->as_table();
  // Entries that are no tables are left out here, and noticed by the comparison below.
  if (all) {
    for (const auto& [name, entry] : *all) {
      if (entry.is_table()) tables.emplace_back(std::string(name.str()), entry.as_table());
    }
  }
  // A [field] with plain values in it is not a set of named tables.
  if (!all || tables.size() < all->size()) fail(field, fmt::format("expected tables [{}.NAME]", field));
  return tables;
}

std::vector<double> TomlFields::positives(const char* field) {
  std::vector<double> values;
  const toml::node* node = find(field, true);
  if (!node) return values;
  const toml::array* list = node->as_array();
  if (!list) {
    fail(field, "expected a list of positive numbers");
    return values;
  }
  // Reading stops at the first wrong entry; one message is enough for a list.
  for (const toml::node& entry : *list) {
    const double value = number_or_0(&entry);
    if (!(value > 0) || !std::isfinite(value)) {
      fail(field, "expected a list of positive numbers");
      return values;
    }
    values.push_back(value);
  }
  return values;
}

std::vector<std::pair<double, double>> TomlFields::points(const char* field) {
  std::vector<std::pair<double, double>> points;
  const toml::node* node = find(field, true);
  if (!node) return points;
  const toml::array* list = node->as_array();
  const char* expected = "expected a list of pairs of positive numbers, [[a, b], ...], with increasing a";
  if (!list || list->empty()) {
    fail(field, expected);
    return points;
  }
  for (const toml::node& entry : *list) {
    const toml::array* pair = entry.as_array();
    // A pair is a list of exactly two numbers.
    const bool two = pair && pair->size() == 2;
    const double first = two ? number_or_0(pair->get(0)) : 0;
    const double second = two ? number_or_0(pair->get(1)) : 0;
    if (!(first > 0 && second > 0) || !std::isfinite(first) || !std::isfinite(second) ||
        (!points.empty() && first <= points.back().first)) {
      fail(field, expected);
      return points;
    }
    points.emplace_back(first, second);
  }
  return points;
}

std::vector<std::pair<double, double>> TomlFields::points_or_none(const char* field) {
  if (!table_->get(field)) return {};
  return points(field);
}

std::vector<TomlFields> TomlFields::tables(const char* field, size_t least) {
  std::vector<TomlFields> tables;
  const toml::node* node = find(field, least > 0);
  if (!node) return tables;
  const toml::array* list = node->as_array();
  // `least` 0 makes the whole array optional. An array of anything else than tables is refused here.
  if (!list || list->size() < least || (!list->empty() && !list->is_homogeneous(toml::node_type::table))) {
    fail(field, fmt::format("expected [[{}]] tables", field));
    return tables;
  }
  for (const toml::node& entry : *list) {
    // Tables of an array have no names, so messages count them from 1.
    const std::string name = fmt::format("{} {}", field, tables.size() + 1);
    tables.emplace_back(*entry.as_table(), where_.empty() ? name : where_ + "." + name, *errors_);
  }
  return tables;
}

void TomlFields::end() {
  for (const auto& [key, node] : *table_) {
    if (!read_.contains(key.str())) fail(std::string(key.str()), "unknown field");
  }
}

}  // namespace hdt::plan
