// flag_values.h: the flags of a training script (run.sh, or words of a command line) as text, before any of
// them means something. Scripts are foreign: nothing in them is run or replaced.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hdt::plan {

// By flag ("--lr"), each time that it was given: its values. A value of its own; any thread may read it.
class FlagValues {
 public:
  // The flags of a shell script: words with "--" before them, and the words up to the next flag, the next
  // operator of the shell or the end of the line (a backslash joins lines). Inside parentheses, where Bash
  // has its arrays, ends of lines do not count. Quotes and comments are the shell's. kInvalidArgument with
  // the line if a quote is open at the end; if the text is larger than 1 MiB.
  static Result<FlagValues> of_script(std::string_view text);
  // Those of a command line: each word is one value. kInvalidArgument if a word is no flag's.
  static Result<FlagValues> of_words(std::span<const std::string> words);

  // Adds those of another one behind these.
  void append(const FlagValues& other);

  bool has(const std::string& flag) const { return values_.contains(flag); }
  bool empty() const { return values_.empty(); }
  void set(const std::string& flag, std::vector<std::string> values) { values_[flag] = {std::move(values)}; }
  // All names, sorted.
  std::vector<std::string> names() const;

  // The functions below take what was given last. No value: the flag was not given. kInvalidArgument names
  // the flag and what is wrong with its values.
  Result<std::optional<std::string>> text(const std::string& flag) const;
  Result<std::optional<int>> whole(const std::string& flag) const;
  // Empty: not given.
  Result<std::vector<int>> wholes(const std::string& flag) const;
  Result<std::vector<std::string>> texts(const std::string& flag) const;
  // Each time that it was given.
  Result<std::vector<std::vector<int>>> all_wholes(const std::string& flag) const;

 private:
  std::map<std::string, std::vector<std::vector<std::string>>> values_;
};

}  // namespace hdt::plan
