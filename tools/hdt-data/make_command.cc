// make_command.cc: `hdt-data make`: opens the source of the documents and has the datasets made, with the
// progress on standard error.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <memory>
#include <set>

#include "tools/hdt-data/commands.h"
#include "training/data/dataset_maker.h"
#include "training/data/encoding_progress.h"
#include "training/data/progress_line.h"
#include "training/data/sentencepiece_tokenizer.h"

namespace hdt::tools {
namespace {

Result<std::unique_ptr<training::InputSource>> open_source(const MakeOptions& options) {
  if (!options.inputs.empty()) return training::open_lines(options.inputs);
  if (!options.bible) return training::open_text_files(options.texts);
  auto books = training::read_bible();
  if (!books.is_ok()) return books.status();
  return training::documents_source(books.take());
}

// The message names the flag, as the user has to correct it.
Status with_flag(const char* flag, const Status& status) {
  return {status.code(), fmt::format("{}: {}", flag, status.message())};
}

}  // namespace

std::string check_make_options(const MakeOptions& options) {
  if (options.inputs.empty()) {
    if (options.append_eod) return "--append-eod: expected --input beside it";
    if (options.json_keys != MakeOptions().json_keys) return "--json-keys: expected --input beside it";
  }
  // A key is a part of a file's name.
  for (const std::string& key : options.json_keys) {
    if (key.empty() || key.find_first_of(std::string_view("/\0", 2)) != std::string::npos)
      return fmt::format("--json-keys: '{}' given; expected a name without '/', as files are named by it",
                         key);
  }
  if (std::set<std::string>(options.json_keys.begin(), options.json_keys.end()).size() !=
      options.json_keys.size())
    return "--json-keys: a key is there twice; expected each once";
  return "";
}

Status make_command(const MakeOptions& options) {
  const auto tokenizer = training::open_tokenizer(options.tokenizer, training::make_sentencepiece_tokenizer);
  if (!tokenizer.is_ok()) return tokenizer.status();
  const bool is_json = !options.inputs.empty();
  const char* const source_flag = is_json ? "--input" : options.bible ? "--bible" : "--text";
  const bool has_end = tokenizer.value()->end_of_document().has_value();
  if (is_json && options.append_eod && !has_end)
    return {Code::kInvalidArgument, "--append-eod: the tokenizer has no end-of-document token"};
  const auto source = open_source(options);
  if (!source.is_ok()) return with_flag(source_flag, source.status());

  training::EncodingProgress progress(std::cerr, {.total_bytes = source.value()->total_bytes(),
                                                  .in_place = training::is_terminal(STDERR_FILENO),
                                                  .columns = training::terminal_columns(STDERR_FILENO),
                                                  .clock = {}});
  training::MakeDatasetOptions making;
  making.append_eod = is_json ? options.append_eod : has_end;
  making.workers = options.workers;
  making.progress = [&](const training::MakeProgress& done) { progress.update(done); };
  std::vector<std::string> prefixes = {options.output};
  if (is_json) {
    making.json_keys = options.json_keys;
    prefixes.clear();
    for (const std::string& key : options.json_keys)
      prefixes.push_back(fmt::format("{}_{}_document", options.output, key));
  }
  const auto made = training::make_datasets(*source.value(), *tokenizer.value(), prefixes, making);
  progress.finish();
  if (!made.is_ok()) return made.status();
  for (size_t i = 0; i < prefixes.size(); ++i) {
    fmt::print("made {0}.bin and {0}.idx: {1} documents, {2} tokens\n", prefixes[i],
               made.value()[i].documents,
               training::format_grouped(static_cast<int64_t>(made.value()[i].tokens)));
  }
  return Status::ok();
}

}  // namespace hdt::tools
