// text_source.h: where text comes from: a file, or the King James text as printed by Debian's `bible`
// command.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hdt::training {

struct Document {
  std::string name;
  std::string text;
};

// The whole file as one document. An empty file is refused.
Result<Document> read_text_file(const std::string& path);

struct BibleOptions {
  std::string command = "bible";                // found through PATH
  std::chrono::milliseconds time_limit{30000};  // the command is killed after that
};

// One document a book, named as `bible` abbreviates it ("Ge"): one line a verse, an empty line between
// chapters.
Result<std::vector<Document>> read_bible(const BibleOptions& options = {});

// The documents in what `bible` prints with one verse a line ("Ge1:1 In the beginning ...").
Result<std::vector<Document>> parse_bible(std::string_view printed);

}  // namespace hdt::training
