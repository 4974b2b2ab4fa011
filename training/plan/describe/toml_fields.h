// toml_fields.h: reads the fields of a TOML table strictly. A missing field, a wrong type, a value out
// of range, or a field that was not asked for is an error that names the file, the table, the field and
// what was expected.
//
// A reader takes field after field and checks nothing in between: after an error, the functions return
// harmless values, and only the first error is kept. read_toml() reports it at the end.
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

// The text as a TOML string, with quotes and escapes.
std::string in_quotes(std::string_view text);
// A TOML array of such strings.
std::string quoted_list(const std::vector<std::string>& texts);

// Keeps the first error of a file. One object serves all tables of the file and must outlive their
// TomlFields.
class TomlErrors {
 public:
  explicit TomlErrors(std::string file) : file_(std::move(file)) {}
  // Becomes "FILE: WHERE: REASON" (kConfig) if it is the first.
  void add(const std::string& where, const std::string& reason);
  // Ok as long as nothing was added.
  Status status() const { return first_; }
  const std::string& file() const { return file_; }

 private:
  std::string file_;
  Status first_;
};

// Parses a whole file. kConfig, with path and line, if it cannot be read, is beyond the limits of
// base/toml.h, or is no TOML.
Result<toml::table> parse_toml_file(const std::string& path);

// The fields of one table. A function without a suffix demands its field; "_or" and "_or_none" return a
// default if it is missing; "optional_" returns nothing then. The table must outlive the object.
class TomlFields {
 public:
  // `where` is the table's name in messages, as "replica 2.stage 1"; empty for the file's top level.
  TomlFields(const toml::table& table, std::string where, TomlErrors& errors);

  // Strings that are not empty.
  std::string text(const char* field);
  std::string text_or(const char* field, const char* otherwise);
  bool flag_or(const char* field, bool otherwise);
  // Finite numbers above 0. Integers are accepted.
  double positive(const char* field);
  double positive_or(const char* field, double otherwise);
  std::optional<double> optional_positive(const char* field);
  // A finite number of at least 0.
  double not_negative_or(const char* field, double otherwise);
  // An integer from 1 to the maximum of int, so that callers may store it in an int.
  int64_t count(const char* field);
  int64_t count_or(const char* field, int64_t otherwise);
  // Such an integer, or a list of at least one of them whose sum is one, too.
  std::vector<int> count_or_counts(const char* field);
  // An integer of at least 0.
  std::optional<int64_t> optional_size(const char* field);
  // An integer of at least 1.
  int64_t size(const char* field);
  // [1, 2, ...]: at least one and at most `most` integers of at least 1.
  std::vector<int64_t> sizes_or_none(const char* field, size_t most);
  // ["a", "b", ...]: at least one text, and none of them empty.
  std::vector<std::string> texts(const char* field);
  std::vector<std::string> texts_or_none(const char* field);
  // [1.0, 2.0, ...]: finite numbers above 0; may be empty.
  std::vector<double> positives(const char* field);
  // [[1.0, 2.0], ...]: at least one pair of finite numbers above 0. The first numbers increase.
  std::vector<std::pair<double, double>> points(const char* field);
  std::vector<std::pair<double, double>> points_or_none(const char* field);
  // The tables of [[field]], at least `least` of them. Call end() on each.
  std::vector<TomlFields> tables(const char* field, size_t least = 1);
  // The tables [field.NAME] with their names; empty if there are none. Their fields are for the caller
  // to check.
  std::vector<std::pair<std::string, const toml::table*>> named_tables(const char* field);
  // Refuses the fields that were not read. Call it last.
  void end();

  // Adds an error about a field. For checks that only the reader can make.
  void fail(const std::string& field, const std::string& reason);

 private:
  // Marks the field as read, so that end() accepts it. Null if it is missing, which is an error if
  // `required`.
  const toml::node* find(const char* field, bool required);
  // The common parts of the functions above.
  double number(const char* field, double otherwise, bool required);
  int64_t integer(const char* field, int64_t least, std::optional<int64_t> otherwise);

  const toml::table* table_;
  std::string where_;
  TomlErrors* errors_;
  // The fields that were asked for, whether or not they exist.
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
