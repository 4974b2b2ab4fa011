// foreign_text.h: limits for texts that come from elsewhere, checked before they are parsed. Parsers and
// printers of nested values recurse once for each level, so a deep text could overflow the stack, and a
// long one could take all memory.
#pragma once

#include <cstddef>
#include <string>
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

// Whether a text may stand in a log line, in a table, in JSON or on a terminal: it is valid UTF-8 (RFC 3629)
// without control characters.
bool is_plain_text(std::string_view text);

// Whether a text is valid UTF-8 (RFC 3629). Control characters may be in it.
bool is_utf8(std::string_view text);

// The text with a '?' for every byte that would make it no plain text. For texts that people read and no
// program compares, as the reason of a failure.
std::string to_plain_text(std::string text);

}  // namespace hdt
