// sentencepiece_tokenizer.h: models of SentencePiece (Kudo, Richardson 2018), by Google's library.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "training/data/tokenizer.h"

namespace hdt::training {

// kInvalidArgument: the library does not take the file. kInvalidUsage: HDT was built without the library; the
// message says what to install.
Result<std::unique_ptr<Tokenizer>> make_sentencepiece_tokenizer(const std::string& path);

}  // namespace hdt::training
