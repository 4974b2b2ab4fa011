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
};

// The types, for help and errors.
const char* tokenizer_types();
// Opens a SentencePieceTokenizer (make_sentencepiece_tokenizer()).
using OpenSentencePiece = Result<std::unique_ptr<Tokenizer>> (*)(const std::string& path);
// Reads at most 256 MiB of each file. kInvalidArgument: a file is missing, too large, or none that this
// tokenizer knows; the message names the flag and the file. A program that has libtorch gives no
// `open_sentencepiece`, and refuses that type.
Result<std::unique_ptr<Tokenizer>> open_tokenizer(const TokenizerChoice& choice,
                                                  OpenSentencePiece open_sentencepiece = nullptr);

}  // namespace hdt::training
