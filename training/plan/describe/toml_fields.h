// toml_fields.h: reads the fields of a TOML table strictly: a missing field, a wrong type, a value out of
// range or a field nobody asked for is an error that names file, table, field and what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/toml.h"

namespace hdt::plan {

// As a TOML string, and as a list of them.
std::string in_quotes(std::string_view text);
std::string quoted_list(const std::vector<std::string>& texts);

// The first thing wrong in a file. Reading goes on with harmless values, so that readers need no checks.
class TomlErrors {
 public:
  explicit TomlErrors(std::string file) : file_(std::move(file)) {}
  void add(const std::string& where, const std::string& reason);
  Status status() const { return first_; }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  Status first_;
};

Result<toml::table> parse_toml_file(const std::string& path);

class TomlFields {
 public:
  TomlFields(const toml::table& table, std::string where, TomlErrors& errors);

  std::string text(const char* field);
  std::string text_or(const char* field, const char* otherwise);
  bool flag_or(const char* field, bool otherwise);
  double positive(const char* field);
  double positive_or(const char* field, double otherwise);
  std::optional<double> optional_positive(const char* field);
  double not_negative_or(const char* field, double otherwise);
  int64_t count(const char* field);  // at least 1
  int64_t count_or(const char* field, int64_t otherwise);
  std::optional<int64_t> optional_size(const char* field);  // at least 0
  int64_t size(const char* field);
  // ["a", "b", ...], at least one, none empty.
  std::vector<std::string> texts(const char* field);
  std::vector<std::string> texts_or_none(const char* field);
  // [1.0, 2.0, ...] of positive numbers; may be empty.
  std::vector<double> positives(const char* field);
  // [[1.0, 2.0], ...] of positive numbers, the first ones increasing.
  std::vector<std::pair<double, double>> points(const char* field);
  std::vector<std::pair<double, double>> points_or_none(const char* field);
  // The tables of [[field]], at least `least`.
  std::vector<TomlFields> tables(const char* field, size_t least = 1);
  // The tables [field.NAME], by name, if there are any.
  std::vector<std::pair<std::string, const toml::table*>> named_tables(const char* field);
  // Call last: refuses fields that were not read.
  void end();

  void fail(const std::string& field, const std::string& reason);

 private:
  const toml::node* find(const char* field, bool required);
  double number(const char* field, double otherwise, bool required);
  int64_t integer(const char* field, int64_t least, std::optional<int64_t> otherwise);

  const toml::table* table_;
  std::string where_;
  TomlErrors* errors_;
  std::set<std::string, std::less<>> read_;
};

// Parses `path`, lets `read` take the fields, then refuses what is left over.
template <typename T, typename Read>
Result<T> read_toml(const std::string& path, Read read) {
  const Result<toml::table> table = parse_toml_file(path);
  if (!table.is_ok()) return table.status();
  TomlErrors errors(path);
  TomlFields fields(table.value(), "", errors);
  T value = read(fields);
  fields.end();
  HDT_RETURN_IF_ERROR(errors.status());
  return value;
}

}  // namespace hdt::plan
