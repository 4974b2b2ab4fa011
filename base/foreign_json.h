// foreign_json.h: JSON that somebody else wrote, such as another daemon's answer or a file. This is the
// only way in which HDT parses such texts.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/foreign_text.h"
#include "base/status.h"

namespace hdt {

// The maximum size in bytes of what comes over a control connection; no message is longer.
inline constexpr size_t kMaxForeignJson = size_t{16} << 20;

// Makes every text in the value plain, as to_plain_text() does; JSON may escape any control character.
// False if a key is no plain text: keys are not replaced, as two of them could become one.
inline bool make_texts_plain(nlohmann::json& json) {
  if (auto* const text = json.get_ptr<std::string*>()) *text = to_plain_text(std::move(*text));
  if (!json.is_structured()) return true;
  for (const auto& [key, part] : json.items()) {
    if ((json.is_object() && !is_plain_text(key)) || !make_texts_plain(part)) return false;
  }
  return true;
}

// Parses `text`, which must not be longer than `most_bytes`. kInvalidArgument says what is wrong: too
// long, too deep, or no JSON. Never throws for what the text holds. Its texts are plain, so they may stand
// on a terminal. The shape of the value is still to be checked.
inline Result<nlohmann::json> parse_foreign_json(std::string_view text, size_t most_bytes = kMaxForeignJson) {
  HDT_RETURN_IF_ERROR(check_json_limits(text, most_bytes));
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return Status(Code::kInvalidArgument, "it is no JSON");
  if (!make_texts_plain(json)) return Status(Code::kInvalidArgument, "a key in it is no plain text");
  return json;
}

// The same for data whose texts no terminal shows: they stay as they are, with line ends and other control
// characters.
inline Result<nlohmann::json> parse_foreign_data(std::string_view text, size_t most_bytes) {
  HDT_RETURN_IF_ERROR(check_json_limits(text, most_bytes));
  if (!is_utf8(text)) return Status(Code::kInvalidArgument, "it is not UTF-8");
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return Status(Code::kInvalidArgument, "it is no JSON");
  return json;
}

// The same as parse_foreign_json() for a text in which no object may have a key twice. JSON allows it, and
// the parser would keep the last one silently; a file that lists things by name must not hide one so.
inline Result<nlohmann::json> parse_foreign_json_once(std::string_view text, size_t most_bytes) {
  HDT_RETURN_IF_ERROR(check_json_limits(text, most_bytes));
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  std::string twice;
  const auto notice = [&](int /*depth*/, nlohmann::json::parse_event_t event, nlohmann::json& part) {
    using Event = nlohmann::json::parse_event_t;
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key) {
      const std::string& key = part.get_ref<const std::string&>();
      if (!keys.back().insert(key).second && twice.empty()) twice = key;
    }
    return true;
  };
  auto json = nlohmann::json::parse(text, notice, false);
  if (json.is_discarded()) return Status(Code::kInvalidArgument, "it is no JSON");
  if (!make_texts_plain(json)) return Status(Code::kInvalidArgument, "a key in it is no plain text");
  if (!twice.empty()) return Status(Code::kInvalidArgument, "the key '" + twice + "' comes twice in it");
  return json;
}

// True if a number anywhere in the value is not an integer. Such a number, converted to an integer type,
// could be out of its range, which is undefined behaviour. The function recurses once for each level, of
// which parse_foreign_json() allows few.
inline bool has_fractions(const nlohmann::json& json) {
  if (json.is_number_float()) return true;
  if (!json.is_structured()) return false;
  for (const auto& part : json) {
    if (has_fractions(part)) return true;
  }
  return false;
}

}  // namespace hdt
