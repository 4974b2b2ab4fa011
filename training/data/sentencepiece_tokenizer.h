// sentencepiece_tokenizer.h: models of SentencePiece (Kudo, Richardson 2018), by Google's library.
#pragma once

#include <memory>

#include "base/status.h"
#include "training/data/tokenizer_choice.h"

namespace hdt::training {

// kInvalidArgument: the library does not take the file. kInvalidUsage: HDT was built without the library; the
// message says what to install.
// The file is choice.model. A Llama2Tokenizer begins each text with the model's token for that (BOS).
Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(const TokenizerChoice& choice);

}  // namespace hdt::training
