// commands.h: the subcommands of hdt-data. Each prints its result on standard output and returns an
// error for main() to print.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "training/data/tokenizer_choice.h"

namespace hdt::tools {

// Where the text comes from, one of files, JSON lines and the Bible, and where the datasets go.
struct MakeOptions {
  // Paths of text files; each becomes a document.
  std::vector<std::string> texts;
  // The King James text of Debian's command `bible`; each book becomes a document.
  bool bible = false;
  // Paths of files with a JSON object on each line; each line becomes a document of the dataset of each key.
  std::vector<std::string> inputs;
  std::vector<std::string> json_keys = {"text"};
  // Ends the documents of `inputs` with the token for that. Those of the other sources always end so, if the
  // tokenizer has that token.
  bool append_eod = false;
  int workers = 1;
  training::TokenizerChoice tokenizer;
  // Prefix: writes PREFIX.bin and PREFIX.idx, or PREFIX_KEY_document.bin and .idx for each of json_keys.
  // Existing files are replaced.
  std::string output;
};
// Why the values do not fit together; "" if they do.
std::string check_make_options(const MakeOptions& options);
// Prints the numbers of documents and tokens, and while it works the progress on standard error. Errors name
// the file or flag at fault.
Status make_command(const MakeOptions& options);

// Answers hdt-train's requests on standard input, which must be its socket (tokenizer_process.h).
Status tokenize_command(const training::TokenizerChoice& choice);

// The dataset to describe.
struct InfoOptions {
  std::string prefix;
  // Print JSON instead of a table.
  bool json = false;
};
// Prints what is in the dataset: sizes, tokens, their entropy, and its beginning.
Status info_command(const InfoOptions& options);

}  // namespace hdt::tools
