// config_file.cc: turns a TOML file into a list of assignments. This is the only place of the
// configuration that includes toml++. Nothing is checked here but the shape: [section], or [class.NAME]
// and [backend.NAME], with values in it.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "base/config_keys.h"
#include "base/foreign_text.h"
#include "base/toml.h"

namespace hdt::config {
namespace {

constexpr size_t kMaxFileBytes = 1 << 20;  // 1 MiB; a file beyond that is none of ours

// The bytes of a regular file of at most kMaxFileBytes.
Result<std::string> read_file(const std::string& path) {
  const auto fail = [&path](const std::string& what) { return Status(Code::kConfig, path + ": " + what); };
  // O_NONBLOCK: opening a pipe by mistake must not wait for a writer.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return fail(fmt::format("cannot be read: {}", std::strerror(errno)));
  struct stat info {};
  std::string text;
  Status status;
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    status = fail("expected a regular file");
  } else {
    // Read in parts, because a regular file may be longer than fstat() reported (/proc).
    std::array<char, 16384> chunk{};
    for (ssize_t got = 0; (got = read(fd, chunk.data(), chunk.size())) != 0;) {
      if (got < 0) {
        if (errno == EINTR) continue;
        status = fail(fmt::format("cannot be read: {}", std::strerror(errno)));
        break;
      }
      text.append(chunk.data(), static_cast<size_t>(got));
      if (text.size() > kMaxFileBytes) {
        status = fail("expected at most 1 MiB");
        break;
      }
    }
  }
  close(fd);
  if (!status.is_ok()) return status;
  return text;
}

// A type for an error message.
const char* type_name(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::string:
      return "a text";
    case toml::node_type::integer:
      return "an integer";
    case toml::node_type::floating_point:
      return "a number with a fraction";
    case toml::node_type::boolean:
      return "a boolean";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      return "a date or time";
    case toml::node_type::none:
      break;
  }
  return "nothing";
}

// A TOML value as the table's types know it. Lists hold texts only; any other type becomes Foreign, so
// that the error names it.
RawValue raw_value(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* integer = node.as_integer()) return integer->get();
  if (const auto* boolean = node.as_boolean()) return boolean->get();
  const auto* array = node.as_array();
  if (array == nullptr) return Foreign{type_name(node)};
  std::vector<std::string> list;
  for (const toml::node& entry : *array) {
    const auto* text = entry.as_string();
    if (text == nullptr) return Foreign{fmt::format("a list with {} in it", type_name(entry))};
    list.push_back(text->get());
  }
  return list;
}

// Walks the parsed file and collects entries with their place, "PATH:LINE".
class Reader {
 public:
  explicit Reader(std::string path) : path_(std::move(path)) {}

  Result<std::vector<Entry>> read(const toml::table& root) {
    for (const auto& [section, node] : root) {
      const auto* table = node.as_table();
      const std::string name(section.str());
      // A key above the first [section].
      if (table == nullptr) {
        return Status(Code::kConfig, fmt::format("{}: {}: expected a key inside of a [section]{}",
                                                 place(section), name, suggestion("", "", name)));
      }
      if (name != kClassSection && name != kBackendSection) {
        add_section(name, "", *table, section);
        continue;
      }
      for (const auto& [class_key, class_node] : *table) {
        const auto* class_table = class_node.as_table();
        // A key right below [class] or [backend], where a name is missing.
        if (class_table == nullptr) {
          return Status(Code::kConfig,
                        fmt::format("{}: {}.{}: expected [{}.NAME] around it", place(class_key), name,
                                    std::string(class_key.str()), name));
        }
        // Declares the class or the backend, also if its table is empty.
        entries_.push_back({name, std::string(class_key.str()), "", Untyped{}, place(class_key)});
        add_section(name, std::string(class_key.str()), *class_table, class_key);
      }
    }
    return std::move(entries_);
  }

 private:
  // The file and the line of a key, for errors and print_config().
  std::string place(const toml::key& key) const {
    return fmt::format("{}:{}", path_, key.source().begin.line);
  }

  // Adds the entries of one table.
  void add_section(const std::string& name, const std::string& class_name, const toml::table& table,
                   const toml::key& section) {
    // An empty section that does not exist is still a mistake worth naming.
    if (table.empty() && !is_section(name)) entries_.push_back({name, "", "", Untyped{}, place(section)});
    for (const auto& [key, node] : table) {
      entries_.push_back({name, class_name, std::string(key.str()), raw_value(node), place(key)});
    }
  }

  std::string path_;
  std::vector<Entry> entries_;
};

}  // namespace

// Depth and size are checked before toml++ sees the text, as its parser recurses once for each level.
Result<std::vector<Entry>> read_config_file(const std::string& path) {
  Result<std::string> text = read_file(path);
  if (!text.is_ok()) return text.status();
  if (const Status fits = check_toml_limits(text.value()); !fits.is_ok())
    return Status(Code::kConfig, path + ": " + fits.message());
  const toml::parse_result parsed = toml::parse(text.value(), path);
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    return Status(Code::kConfig, fmt::format("{}:{}: not valid TOML: {}", path, error.source().begin.line,
                                             error.description()));
  }
  return Reader(path).read(parsed.table());
}

}  // namespace hdt::config
