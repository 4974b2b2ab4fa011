// flag_values.cc: cuts a script into words as a shell would, and sorts them by flag.
#include "training/plan/convert/flag_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>

#include "base/whole_number.h"

namespace hdt::plan {
namespace {

constexpr size_t kLongestText = size_t{1} << 20;
constexpr size_t kMostValues = 65'536;  // of one flag

Status invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

// A word, or the end of a flag's values.
struct Token {
  std::string word;
  bool end = false;
};

bool is_operator(char c) {
  return c == '(' || c == ')' || c == ';' || c == '&' || c == '|' || c == '<' || c == '>';
}

// The shell's rules as far as words need them. A variable stays as it is written, with its '$', which
// plain_value() below refuses where it matters.
class Cutter {
 public:
  explicit Cutter(std::string_view text) : text_(text) {}

  Result<std::vector<Token>> run() && {
    while (at_ < text_.size()) HDT_RETURN_IF_ERROR(step());
    end_word();
    return std::move(tokens_);
  }

 private:
  Status step() {
    const char c = text_[at_];
    if (c == '\\') {
      escaped();
    } else if (c == '\'' || c == '"') {
      return quoted(c);
    } else if (c == '#' && !in_word_) {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '$' && at_ + 1 < text_.size() && (text_[at_ + 1] == '(' || text_[at_ + 1] == '{')) {
      variable(text_[at_ + 1] == '(' ? ')' : '}');
    } else if (is_operator(c) || c == '\n') {
      end_word();
      if (c == '(') ++depth_;
      if (c == ')') depth_ = std::max(depth_ - 1, 0);
      if (c != '\n' || depth_ == 0) tokens_.push_back({"", true});
      line_ += c == '\n' ? 1 : 0;
      ++at_;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      end_word();
      ++at_;
    } else {
      add(c);
      ++at_;
    }
    return Status::ok();
  }

  // Joins lines, or takes a character as it is.
  void escaped() {
    ++at_;
    if (at_ == text_.size()) return;
    if (text_[at_] == '\n') {
      ++line_;
    } else if (text_.substr(at_, 2) == "\r\n") {
      ++at_;
      ++line_;
    } else {
      add(text_[at_]);
    }
    ++at_;
  }

  Status quoted(char quote) {
    const int begin = line_;
    in_word_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      line_ += text_[at_] == '\n' ? 1 : 0;
      add(text_[at_]);
    }
    if (at_ == text_.size()) return invalid(fmt::format("line {}: a {} is open at the end", begin, quote));
    ++at_;
    return Status::ok();
  }

  // "${NAME}" or "$(command)" up to its end.
  void variable(char end) {
    while (at_ < text_.size() && text_[at_] != end && text_[at_] != '\n') add(text_[at_++]);
    if (at_ < text_.size() && text_[at_] == end) add(text_[at_++]);
  }

  void add(char c) {
    in_word_ = true;
    word_ += c;
  }
  void end_word() {
    if (in_word_) tokens_.push_back({std::exchange(word_, {}), false});
    in_word_ = false;
  }

  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;  // of parentheses
  bool in_word_ = false;
  std::string word_;
  std::vector<Token> tokens_;
};

// "--name", with or without "=value".
bool is_flag(const std::string& word) {
  return word.size() > 2 && word.starts_with("--") && std::isalpha(static_cast<unsigned char>(word[2])) != 0;
}
// "-c", which is no value either. A negative number is one.
bool is_short_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && std::isalpha(static_cast<unsigned char>(word[1])) != 0;
}

// What messages show of foreign text.
std::string shown(const std::string& text) {
  std::string plain = text.substr(0, 60);
  std::ranges::replace_if(
      plain, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text.size() > 60 ? plain + "..." : plain;
}

// Fails where only a shell would know the value.
Result<std::string> plain_value(const std::string& flag, const std::string& value) {
  if (value.find_first_of("$`") == std::string::npos) return value;
  return invalid(fmt::format("{}: '{}' is a variable of the script: give the flag with its value behind --",
                             flag, shown(value)));
}

Result<int> number_of(const std::string& flag, const std::string& value) {
  const Result<std::string> plain = plain_value(flag, value);
  if (!plain.is_ok()) return plain.status();
  const std::optional<int> number = whole_number<int>(value);
  if (!number) return invalid(fmt::format("{}: '{}', expected a whole number", flag, shown(value)));
  return *number;
}

Result<std::vector<int>> numbers_of(const std::string& flag, const std::vector<std::string>& values) {
  if (values.empty()) return invalid(flag + ": no values, expected numbers");
  std::vector<int> numbers;
  for (const std::string& value : values) {
    const Result<int> number = number_of(flag, value);
    if (!number.is_ok()) return number.status();
    numbers.push_back(number.value());
  }
  return numbers;
}

}  // namespace

Result<FlagValues> FlagValues::of_script(std::string_view text) {
  if (text.size() > kLongestText)
    return invalid(fmt::format("{} bytes, expected at most {}", text.size(), kLongestText));
  const Result<std::vector<Token>> tokens = Cutter(text).run();
  if (!tokens.is_ok()) return tokens.status();
  FlagValues flags;
  std::vector<std::string>* values = nullptr;  // of the flag that may have more
  for (const Token& token : tokens.value()) {
    if (token.end || (is_short_flag(token.word) && !is_flag(token.word))) {
      values = nullptr;
    } else if (is_flag(token.word)) {
      const size_t equals = token.word.find('=');
      auto& given = flags.values_[token.word.substr(0, equals)];
      values = &given.emplace_back();
      if (equals == std::string::npos) continue;
      values->push_back(token.word.substr(equals + 1));
      values = nullptr;
    } else if (values && values->size() < kMostValues) {
      values->push_back(token.word);
    } else if (values) {
      return invalid(fmt::format("a flag has more than {} values", kMostValues));
    }
  }
  return flags;
}

Result<FlagValues> FlagValues::of_words(std::span<const std::string> words) {
  FlagValues flags;
  std::vector<std::string>* values = nullptr;
  for (const std::string& word : words) {
    if (is_flag(word)) {
      const size_t equals = word.find('=');
      values = &flags.values_[word.substr(0, equals)].emplace_back();
      if (equals != std::string::npos) values->push_back(word.substr(equals + 1));
    } else if (values) {
      values->push_back(word);
    } else {
      return invalid(fmt::format("'{}', expected a flag", shown(word)));
    }
  }
  return flags;
}

void FlagValues::append(const FlagValues& other) {
  for (const auto& [flag, given] : other.values_) std::ranges::copy(given, std::back_inserter(values_[flag]));
}

std::vector<std::string> FlagValues::names() const {
  std::vector<std::string> names;
  for (const auto& [flag, given] : values_) names.push_back(flag);
  return names;
}

Result<std::optional<std::string>> FlagValues::text(const std::string& flag) const {
  const auto given = values_.find(flag);
  if (given == values_.end()) return std::optional<std::string>();
  const std::vector<std::string>& values = given->second.back();
  if (values.size() != 1) return invalid(fmt::format("{}: {} values, expected one", flag, values.size()));
  const Result<std::string> plain = plain_value(flag, values.front());
  if (!plain.is_ok()) return plain.status();
  return std::optional(plain.value());
}

Result<std::optional<int>> FlagValues::whole(const std::string& flag) const {
  const Result<std::optional<std::string>> value = text(flag);
  if (!value.is_ok()) return value.status();
  if (!value.value()) return std::optional<int>();
  const Result<int> number = number_of(flag, *value.value());
  if (!number.is_ok()) return number.status();
  return std::optional(number.value());
}

Result<std::vector<int>> FlagValues::wholes(const std::string& flag) const {
  const auto given = values_.find(flag);
  if (given == values_.end()) return std::vector<int>();
  return numbers_of(flag, given->second.back());
}

Result<std::vector<std::string>> FlagValues::texts(const std::string& flag) const {
  const auto given = values_.find(flag);
  if (given == values_.end()) return std::vector<std::string>();
  for (const std::string& value : given->second.back()) {
    const Result<std::string> plain = plain_value(flag, value);
    if (!plain.is_ok()) return plain.status();
  }
  return given->second.back();
}

Result<std::vector<std::vector<int>>> FlagValues::all_wholes(const std::string& flag) const {
  std::vector<std::vector<int>> all;
  const auto given = values_.find(flag);
  if (given == values_.end()) return all;
  for (const std::vector<std::string>& values : given->second) {
    Result<std::vector<int>> numbers = numbers_of(flag, values);
    if (!numbers.is_ok()) return numbers.status();
    all.push_back(numbers.take());
  }
  return all;
}

}  // namespace hdt::plan
