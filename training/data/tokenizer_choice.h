// tokenizer_choice.h: makes the tokenizer that the flags of a tool name, from the files of others.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "training/data/tokenizer.h"

namespace hdt::training {

// Megatron's flags.
struct TokenizerChoice {
  std::string type = "bytes";   // --tokenizer-type
  std::string vocab_file = {};  // --vocab-file and --merge-file of GPT2BPETokenizer
  std::string merge_file = {};
  std::string model = {};  // --tokenizer-model of the others

  bool is_bytes() const { return type == "bytes"; }
  // A SentencePiece model whose texts begin with its token for that, as Megatron has it.
  bool is_llama2() const { return type == "Llama2Tokenizer"; }
};

// The types, for help and errors.
const char* tokenizer_types();
// Opens a SentencePieceTokenizer or a Llama2Tokenizer: make_sentencepiece_tokenizer(), or a process that has
// it (tokenizer_process.h).
using OpenSentencePiece = Result<std::unique_ptr<Tokenizer>> (*)(const TokenizerChoice& choice);
// Reads at most 256 MiB of each file. kInvalidArgument: a file is missing, too large, or none that this
// tokenizer knows; the message names the flag and the file.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const TokenizerChoice& choice,
                                                  OpenSentencePiece open_sentencepiece);

}  // namespace hdt::training
