// foreign_text.cc: the checks behind foreign_text.h. Each scans a text once, counts open brackets
// outside of quoted texts, and needs no memory. The scan is not a parser and accepts invalid texts. That
// is safe: a parser stops at its first error, and up to there the text is valid, so the scan has seen
// the same depth.
#include "base/foreign_text.h"

#include <algorithm>
#include <string>

namespace hdt {

namespace {

Status too_long(size_t bytes, size_t most) {
  return {Code::kInvalidArgument,
          "a text of " + std::to_string(bytes) + " bytes; at most " + std::to_string(most) + " are read"};
}

Status too_deep(size_t most) {
  return {Code::kInvalidArgument,
          "values within values; at most " + std::to_string(most) + " levels are read"};
}

// A character of a TOML key without quotes.
bool is_bare_key(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// Where the quoted text that begins at `at` ends: at its closing mark, or at the end of `text`. With
// escapes a backslash hides the next character; TOML's texts in single quotes have none.
size_t end_of_quoted(std::string_view text, size_t at, bool has_escapes) {
  const char mark = text[at];
  for (++at; at < text.size() && text[at] != mark; ++at) {
    if (has_escapes && text[at] == '\\') ++at;
  }
  return at;
}

// Whether three equal marks begin at `at`.
bool is_tripled(std::string_view text, size_t at) {
  return at + 2 < text.size() && text[at + 1] == text[at] && text[at + 2] == text[at];
}

// The same for TOML's texts between three marks. One or two marks are part of such a text, also right
// before its closing three, so up to five marks in a row end it.
size_t end_of_tripled(std::string_view text, size_t at, bool has_escapes) {
  const char mark = text[at];
  for (at += 3; at < text.size(); ++at) {
    if (has_escapes && text[at] == '\\') {
      ++at;
    } else if (text[at] == mark && is_tripled(text, at)) {
      at += 2;
      for (int more = 0; more < 2 && at + 1 < text.size() && text[at + 1] == mark; ++more) ++at;
      return at;
    }
  }
  return at;
}

// The bytes of the character that begins at `at`; 0 if it is a control character or broken UTF-8. The lead
// byte gives the length; 0xc0, 0xc1 and everything from 0xf5 on lead nothing.
size_t plain_character(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x20 || lead == 0x7f) return 0;
  if (lead < 0x80) return 1;
  const size_t length = lead >= 0xc2 && lead < 0xe0   ? 2
                        : (lead & 0xf0) == 0xe0       ? 3
                        : lead >= 0xf0 && lead < 0xf5 ? 4
                                                      : 0;
  if (length == 0 || length > text.size() - at) return 0;
  for (size_t k = 1; k < length; ++k) {
    if ((byte(at + k) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, UTF-16 surrogates, what lies beyond U+10FFFF, the control characters U+0080 to U+009F.
  const unsigned char second = byte(at + 1);
  const bool valid = !(lead == 0xe0 && second < 0xa0) && !(lead == 0xed && second >= 0xa0) &&
                     !(lead == 0xf0 && second < 0x90) && !(lead == 0xf4 && second >= 0x90) &&
                     !(lead == 0xc2 && second < 0xa0);
  return valid ? length : 0;
}

}  // namespace

// Brackets of both kinds are counted together: whether they match is for the parser to say.
Status check_json_limits(std::string_view text, size_t most_bytes) {
  if (text.size() > most_bytes) return too_long(text.size(), most_bytes);
  size_t depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"') at = end_of_quoted(text, at, true);
    if ((c == '[' || c == '{') && ++depth > kMaxJsonDepth) return too_deep(kMaxJsonDepth);
    if ((c == ']' || c == '}') && depth > 0) --depth;
  }
  return Status::ok();
}

// Two things nest in TOML: brackets, and the parts of a dotted key (a.b.c), each of which makes a table.
// `parts` counts the dots of the key or number that is being read; whatever cannot stand in a key sets
// it back. Comments are skipped, as they may hold any character.
Status check_toml_limits(std::string_view text) {
  if (text.size() > kMaxTomlBytes) return too_long(text.size(), kMaxTomlBytes);
  size_t depth = 0;  // brackets
  size_t parts = 1;  // of the key that may be under way
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '#') {
      at = std::min(text.find('\n', at), text.size());
      parts = 1;
    } else if (c == '"' || c == '\'') {
      at = is_tripled(text, at) ? end_of_tripled(text, at, c == '"') : end_of_quoted(text, at, c == '"');
    } else if (c == '[' || c == '{') {
      ++depth;
      parts = 1;
    } else if (c == ']' || c == '}') {
      depth -= depth > 0 ? 1 : 0;
      parts = 1;
    } else if (c == '.') {
      ++parts;
    } else if (!is_bare_key(c) && c != ' ' && c != '\t') {
      parts = 1;
    }
    if (depth > kMaxTomlDepth || parts > kMaxTomlDepth) return too_deep(kMaxTomlDepth);
  }
  return Status::ok();
}

bool is_plain_text(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = plain_character(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

// The control characters, which are no plain text, are the ASCII ones, and U+0080 to U+009F (0xc2 and a
// second byte).
bool is_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const auto lead = static_cast<unsigned char>(text[at]);
    const bool control =
        lead == 0xc2 && at + 1 < text.size() && (static_cast<unsigned char>(text[at + 1]) & 0xe0U) == 0x80;
    const size_t length = lead < 0x80 ? 1 : control ? 2 : plain_character(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

std::string to_plain_text(std::string text) {
  for (size_t at = 0; at < text.size();) {
    const size_t length = plain_character(text, at);
    if (length == 0) text[at] = '?';
    at += std::max(length, size_t{1});
  }
  return text;
}

}  // namespace hdt
