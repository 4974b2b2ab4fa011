// yaml_values.cc: walks over the events of libyaml. These never expand aliases, so a short file stays small.
#include "training/plan/convert/yaml_values.h"

#ifdef HDT_HAVE_YAML
#include <fmt/format.h>
#include <yaml.h>

#include <algorithm>
#include <cctype>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>
#endif

namespace hdt::plan {

#ifdef HDT_HAVE_YAML

namespace {

constexpr size_t kLongestYaml = size_t{1} << 20;
constexpr size_t kDeepestYaml = 32;
constexpr size_t kMostYamlValues = 65'536;  // of one key

Status yaml_error(size_t line, const std::string& reason) {
  return {Code::kInvalidArgument, fmt::format("line {}: {}", line + 1, reason)};
}

struct DeleteParser {
  void operator()(yaml_parser_t* parser) const {
    yaml_parser_delete(parser);
    delete parser;
  }
};

// An event of libyaml's, which is freed.
class Event {
 public:
  Event() = default;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { yaml_event_delete(&event); }
  yaml_event_t event{};
};

// "--num-layers" of "num_layers".
std::string flag_of(const std::string& key) {
  std::string flag = "--" + key;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

// Collects values. A map's keys and values take turns.
class YamlWalk {
 public:
  Status take(const yaml_event_t& event) {
    const size_t line = event.start_mark.line;
    switch (event.type) {
      case YAML_ALIAS_EVENT:
        return yaml_error(line, "an alias (*), which is not read here");
      case YAML_SCALAR_EVENT:
        return scalar(event, line);
      case YAML_MAPPING_START_EVENT:
      case YAML_SEQUENCE_START_EVENT:
        return begin(event.type == YAML_MAPPING_START_EVENT, line);
      case YAML_MAPPING_END_EVENT:
      case YAML_SEQUENCE_END_EVENT:
        open_.pop_back();
        value_ended();
        return Status::ok();
      default:
        return Status::ok();
    }
  }

  FlagValues values() && { return std::move(flags_); }

 private:
  struct Open {
    bool map = false;
    std::optional<std::string> key = {};  // of the value that comes next, in a map
  };

  // A map inside a list is no setting. Lists in lists are one list of values.
  Status begin(bool map, size_t line) {
    if (open_.size() == kDeepestYaml)
      return yaml_error(line, fmt::format("nested deeper than {} levels", kDeepestYaml));
    if (!open_.empty() && open_.back().map) {
      if (!open_.back().key) return yaml_error(line, "a key that is no text");
      if (!map) HDT_RETURN_IF_ERROR(start_list(*open_.back().key, line));
    }
    if (map) list_.reset();
    open_.push_back({map});
    return Status::ok();
  }

  Status start_list(const std::string& key, size_t line) {
    if (flags_.has(flag_of(key))) return yaml_error(line, fmt::format("{} is given twice", flag_of(key)));
    list_ = flag_of(key);
    items_.clear();
    list_depth_ = open_.size();
    return Status::ok();
  }

  void value_ended() {
    if (list_ && open_.size() == list_depth_) {
      flags_.set(*list_, std::exchange(items_, {}));
      list_.reset();
    }
    if (!open_.empty() && open_.back().map) open_.back().key.reset();
  }

  Status scalar(const yaml_event_t& event, size_t line) {
    const std::string text(reinterpret_cast<const char*>(event.data.scalar.value), event.data.scalar.length);
    if (open_.empty()) return yaml_error(line, "expected keys with values");
    if (!open_.back().map) {
      if (list_ && items_.size() == kMostYamlValues)
        return yaml_error(line, fmt::format("a list of more than {} values", kMostYamlValues));
      if (list_) items_.push_back(text);
      return Status::ok();
    }
    if (!open_.back().key) {
      open_.back().key = text.substr(0, 200);
      return Status::ok();
    }
    const std::string flag = flag_of(*std::exchange(open_.back().key, {}));
    std::string lower = text;
    std::ranges::transform(lower, lower.begin(), [](unsigned char c) { return std::tolower(c); });
    if (event.data.scalar.style == YAML_PLAIN_SCALAR_STYLE &&
        (lower.empty() || lower == "~" || lower == "null" || lower == "false"))
      return Status::ok();
    if (flags_.has(flag)) return yaml_error(line, fmt::format("{} is given twice", flag));
    flags_.set(flag, lower == "true" ? std::vector<std::string>() : std::vector<std::string>{text});
    return Status::ok();
  }

  std::vector<Open> open_;
  std::optional<std::string> list_;  // the flag whose values are collected
  size_t list_depth_ = 0;
  std::vector<std::string> items_;
  FlagValues flags_;
};

}  // namespace

Result<FlagValues> yaml_values(std::string_view text) {
  if (text.size() > kLongestYaml)
    return Status(Code::kInvalidArgument,
                  fmt::format("{} bytes, expected at most {}", text.size(), kLongestYaml));
  std::unique_ptr<yaml_parser_t, DeleteParser> parser;
  {
    auto made = std::make_unique<yaml_parser_t>();
    if (yaml_parser_initialize(made.get()) == 0)
      return Status(Code::kInternal, "libyaml: no memory for a parser");
    parser.reset(made.release());
  }
  yaml_parser_set_input_string(parser.get(), reinterpret_cast<const unsigned char*>(text.data()),
                               text.size());
  YamlWalk walk;
  while (true) {
    Event next;
    if (yaml_parser_parse(parser.get(), &next.event) == 0)
      return yaml_error(parser->problem_mark.line, parser->problem ? parser->problem : "no YAML");
    if (next.event.type == YAML_STREAM_END_EVENT) break;
    HDT_RETURN_IF_ERROR(walk.take(next.event));
  }
  return std::move(walk).values();
}

#else

Result<FlagValues> yaml_values(std::string_view /*text*/) {
  return Status(Code::kInvalidArgument,
                "a YAML file, and this hdt-plan was built without libyaml (Debian: libyaml-dev)");
}

#endif

}  // namespace hdt::plan
