// text_pattern.cc: PCRE2 with its Unicode properties. It checks the text's UTF-8 once; the further matches in
// the same text need no check.
#define PCRE2_CODE_UNIT_WIDTH 8
#include "training/data/text_pattern.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <array>

namespace hdt::training {
namespace {

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> text = {};
  pcre2_get_error_message(code, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

Result<TextPattern> TextPattern::compile(const std::string& expression) {
  int error = 0;
  PCRE2_SIZE place = 0;
  // Patterns come from files: callouts and the like of PCRE2 are of no use here, and \C would cut characters.
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(expression.data()), expression.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (code == nullptr) {
    return Status(Code::kInvalidArgument, fmt::format("'{}' is no regular expression: {} at byte {}",
                                                      expression, message_of(error), place));
  }
  TextPattern pattern;
  // Without the just-in-time compiler (a system that forbids it) matching is slower, and the same.
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  pattern.code_ = std::shared_ptr<const void>(
      code, [](const void* of) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(of))); });
  return pattern;
}

Status TextPattern::split(std::string_view text,
                          const std::function<void(std::string_view piece)>& take) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  uint32_t options = 0;
  size_t taken = 0;  // what lies before is given away
  size_t from = 0;   // where the next match may begin
  while (from < text.size()) {
    const int found = pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, options,
                                  match.get(), nullptr);
    options = PCRE2_NO_UTF_CHECK;
    if (found == PCRE2_ERROR_NOMATCH) break;
    if (found <= PCRE2_ERROR_UTF8_ERR1 && found >= PCRE2_ERROR_UTF8_ERR21) {
      return {Code::kInvalidArgument, fmt::format("byte {} of the text is no UTF-8 ({})",
                                                  pcre2_get_startchar(match.get()), message_of(found))};
    }
    if (found < 0)
      return {Code::kSystem, fmt::format("the text cannot be cut at byte {}: {}", from, message_of(found))};
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(match.get());
    const size_t begin = place[0];
    const size_t end = place[1];
    // \K in a lookaround can make a match that ends before it begins, or begins before it was looked for.
    if (begin < from || end < begin)
      return {Code::kInvalidArgument, "the regular expression has matches that overlap"};
    if (end == begin) {
      // An empty match cuts nothing; on to the next character.
      ++from;
      while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0U) == 0x80U) ++from;
      continue;
    }
    if (begin > taken) take(text.substr(taken, begin - taken));
    take(text.substr(begin, end - begin));
    taken = from = end;
  }
  if (taken < text.size()) take(text.substr(taken));
  return Status::ok();
}

}  // namespace hdt::training
