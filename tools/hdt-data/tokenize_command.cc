// tokenize_command.cc: the tokenizer of another process.
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/hdt-data/commands.h"
#include "training/data/sentencepiece_tokenizer.h"
#include "training/data/tokenizer_process.h"

namespace hdt::tools {

Status tokenize_command(const training::TokenizerChoice& choice) {
  struct stat input {};
  if (::fstat(STDIN_FILENO, &input) != 0 || !S_ISSOCK(input.st_mode))
    return {Code::kInvalidUsage,
            "tokenize: standard input is no socket; hdt-train starts this command, to encode make a dataset"};
  return training::serve_tokenizer(training::open_tokenizer(choice, training::make_sentencepiece_tokenizer),
                                   STDIN_FILENO);
}

}  // namespace hdt::tools
