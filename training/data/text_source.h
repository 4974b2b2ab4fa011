// text_source.h: where text comes from: a file, or the King James text as Debian's `bible` command prints it.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace hdt::training {

// A text that the dataset keeps as one unit.
struct Document {
  std::string name;
  std::string text;
};

// The whole file as one document. kInvalidArgument: it is empty, or larger than one sequence may be.
Result<Document> read_text_file(const std::string& path);

// How the command is run.
struct BibleOptions {
  std::string command = "bible";                // found through PATH
  std::chrono::milliseconds time_limit{30000};  // the command is killed after that
};

// Runs the command. One document for each book, named as `bible` abbreviates it ("Ge"): one line for
// each verse, an empty line between chapters. kTimeout: the command took too long. kSystem: it is not
// installed, failed, or did not print all books. kInvalidArgument: a line is no verse.
Result<std::vector<Document>> read_bible(const BibleOptions& options = {});

// The documents in what `bible` prints with one verse on each line ("Ge1:1 In the beginning ...").
Result<std::vector<Document>> parse_bible(std::string_view printed);

}  // namespace hdt::training
