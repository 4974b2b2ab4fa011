// make_command.cc: `hdt-data make`: reads the documents, then writes the dataset. The documents are in
// memory all at once.
#include <fmt/format.h>

#include <cstdio>

#include "tools/hdt-data/commands.h"
#include "training/data/dataset_maker.h"
#include "training/data/progress_line.h"
#include "training/data/sentencepiece_tokenizer.h"

namespace hdt::tools {

Status make_command(const MakeOptions& options) {
  const auto tokenizer = training::open_tokenizer(options.tokenizer, training::make_sentencepiece_tokenizer);
  if (!tokenizer.is_ok()) return tokenizer.status();
  std::vector<training::Document> documents;
  if (options.bible) {
    auto books = training::read_bible();
    if (!books.is_ok()) return books.status();
    documents = books.take();
  }
  for (const std::string& path : options.texts) {
    auto document = training::read_text_file(path);
    // The message names the flag, as the user has to correct it.
    if (!document.is_ok()) return Status(document.status().code(), "--text: " + document.status().message());
    documents.push_back(document.take());
  }
  const auto made = training::make_dataset(documents, *tokenizer.value(), options.output);
  if (!made.is_ok()) return Status(made.status().code(), "--output: " + made.status().message());
  fmt::print("made {0}.bin and {0}.idx: {1} documents, {2} tokens\n", options.output, made.value().documents,
             training::format_grouped(static_cast<int64_t>(made.value().tokens)));
  return Status::ok();
}

}  // namespace hdt::tools
