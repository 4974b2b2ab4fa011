// commands.h: the subcommands of hdt-data. Each prints its result on standard output and returns an
// error for main() to print.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/data/tokenizer_choice.h"

namespace hdt::tools {

// Where the text comes from, either files or the Bible, and where the dataset goes.
struct MakeOptions {
  // Paths of text files; each becomes a document.
  std::vector<std::string> texts;
  // The King James text of Debian's command `bible`; each book becomes a document.
  bool bible = false;
  training::TokenizerChoice tokenizer;
  // Prefix: writes PREFIX.bin and PREFIX.idx, replacing existing files.
  std::string output;
};
// Prints the numbers of documents and tokens. Errors name the flag at fault.
Status make_command(const MakeOptions& options);

// The dataset to describe.
struct InfoOptions {
  std::string prefix;
  // Print JSON instead of a table.
  bool json = false;
};
// Prints what is in the dataset: sizes, tokens, their entropy, and its beginning.
Status info_command(const InfoOptions& options);

}  // namespace hdt::tools
