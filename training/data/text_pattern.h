// text_pattern.h: cuts UTF-8 text by a regular expression with Unicode classes (PCRE2).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt::training {

// A compiled expression. Const, so any number of threads may use one.
class TextPattern {
 public:
  // kInvalidArgument: no regular expression, with the reason and the place.
  static Result<TextPattern> compile(const std::string& expression);

  // Gives the text to `take` piece by piece, matches and what lies between them, without empty pieces;
  // together they are the text. kInvalidArgument: no UTF-8, with the place. kSystem: a match exceeds
  // PCRE2's limits.
  Status split(std::string_view text, const std::function<void(std::string_view piece)>& take) const;

 private:
  TextPattern() = default;

  std::shared_ptr<const void> code_;  // a pcre2_code
};

}  // namespace hdt::training
