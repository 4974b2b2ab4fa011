// foreign_text.h: limits for texts that come from elsewhere, checked before they are parsed. Parsers and
// printers of nested values recurse once for each level, so a deep text could overflow the stack, and a
// long one could take all memory.
#pragma once

#include <cstddef>
#include <string_view>

#include "base/status.h"

namespace hdt {

// The limits. HDT's own texts stay far below them.
inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxTomlDepth = 32;
inline constexpr size_t kMaxTomlBytes = size_t{4} << 20;

// kInvalidArgument if the text is longer than `most_bytes`, or if brackets are nested deeper than
// kMaxJsonDepth. The text need not be valid JSON; the parser decides that.
Status check_json_limits(std::string_view text, size_t most_bytes);

// The same for TOML with its own limits. A key of several parts (a.b.c) makes as many levels.
Status check_toml_limits(std::string_view text);

// Whether a name may stand in a log line, in a table or on a terminal: it holds no control characters.
bool is_printable(std::string_view name);

}  // namespace hdt
