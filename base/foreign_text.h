// foreign_text.h: limits of texts that come from elsewhere, looked at before they are parsed. Parsers and
// printers of nested values call themselves for each level, so depth is stack; and memory grows with size.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace hdt {

// No text of HDT's own comes near these.
inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxTomlDepth = 32;
inline constexpr size_t kMaxTomlBytes = size_t{4} << 20;

// kInvalidArgument where the text is longer than `most_bytes`, or has brackets within brackets deeper than
// kMaxJsonDepth. It need not be JSON: that is for the parser to say.
Status check_json_limits(std::string_view text, size_t most_bytes);

// The same for TOML, where a key of several parts (a.b.c) makes as many levels.
Status check_toml_limits(std::string_view text);

// A name that may stand in a log line, a table or a terminal: no control characters.
bool is_printable(std::string_view name);

}  // namespace hdt
