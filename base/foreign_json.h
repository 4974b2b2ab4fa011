// foreign_json.h: JSON that somebody else wrote: another daemon's answer, a file. The only way to parse such.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/foreign_text.h"
#include "base/status.h"

namespace hdt {

// Of what comes over a control connection: no message is longer.
inline constexpr size_t kMaxForeignJson = size_t{16} << 20;

// kInvalidArgument says what is wrong with it.
inline Result<nlohmann::json> parse_foreign_json(std::string_view text, size_t most_bytes = kMaxForeignJson) {
  HDT_RETURN_IF_ERROR(check_json_limits(text, most_bytes));
  auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_discarded()) return Status(Code::kInvalidArgument, "it is no JSON");
  return json;
}

// True if some number in it is no integer: read as one it could be beyond all integers. It calls itself
// for each level, of which parse_foreign_json allows few.
inline bool has_fractions(const nlohmann::json& json) {
  if (json.is_number_float()) return true;
  if (!json.is_structured()) return false;
  for (const auto& part : json) {
    if (has_fractions(part)) return true;
  }
  return false;
}

}  // namespace hdt
