// tokenizer_flags.h: the flags that choose a tokenizer, in Megatron's names.
#pragma once

#include <CLI/CLI.hpp>

#include "tools/common/flag_checks.h"

namespace hdt::tools {

// `Choice` is training::TokenizerChoice, which this folder does not know; `types` lists the types. `choice`
// must outlive the parsing. open_tokenizer() checks the values against each other.
template <typename Choice>
void add_tokenizer_flags(CLI::App& app, Choice& choice, const char* types) {
  app.add_option("--tokenizer-type", choice.type, types)->type_name("NAME")->capture_default_str();
  app.add_option("--vocab-file", choice.vocab_file, "vocab.json of a GPT2BPETokenizer")
      ->type_name("FILE")
      ->check(path_name());
  app.add_option("--merge-file", choice.merge_file, "merges.txt of a GPT2BPETokenizer")
      ->type_name("FILE")
      ->check(path_name());
  app.add_option("--tokenizer-model", choice.model,
                 "the .model of a SentencePieceTokenizer or a Llama2Tokenizer; a HuggingFaceTokenizer's "
                 "tokenizer.json (BPE), or its folder")
      ->type_name("FILE")
      ->check(path_name());
}

}  // namespace hdt::tools
