// tokenizer_process.h: a tokenizer in another process. SentencePiece and libtorch cannot be in one, as both
// bring a protobuf whose symbols have the same names; so hdt-train has `hdt-data tokenize` encode for it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/data/tokenizer.h"

namespace hdt::training {

// Starts `arguments`, which begin with the path of the program: one that calls serve_tokenizer() with its
// standard input and output. The process ends with the tokenizer, or with this process. Calls of the
// tokenizer wait for each other; each has a deadline of a minute, and of 10 s more for each MiB of text.
// kInvalidArgument: what the program says of its tokenizer. kSystem, kTimeout: it cannot be started, or does
// not answer.
Result<std::unique_ptr<Tokenizer>> start_tokenizer(const std::vector<std::string>& arguments);

// The other end: answers on the socket, which is standard input and output, until the peer closes it. If the
// tokenizer could not be opened, the reason is the first and only answer. kInvalidArgument: no request came,
// but something else. Blocks.
Status serve_tokenizer(const Result<std::unique_ptr<Tokenizer>>& tokenizer, int socket);

}  // namespace hdt::training
