// dataset_maker.h: makes indexed datasets of tokens from text documents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/data/input_source.h"
#include "training/data/tokenizer.h"

namespace hdt::training {

// The size of a dataset that was written.
struct MadeDataset {
  uint64_t documents = 0;
  uint64_t tokens = 0;  // with the ends of documents
};

// The part that has been written so far.
struct MakeProgress {
  uint64_t documents = 0;
  uint64_t bytes = 0;  // of the input
};

struct MakeDatasetOptions {
  // One dataset for each key: every text is then a JSON object, and its value of that key is the document.
  // Empty: every text is the document of the only dataset.
  std::vector<std::string> json_keys = {};
  // Adds the end-of-document token to every document that is not empty. kInvalidArgument if the tokenizer has
  // none.
  bool append_eod = true;
  // Threads that encode. The datasets do not depend on it.
  int workers = 1;
  // Called now and then by the thread that makes the datasets; may be empty.
  std::function<void(const MakeProgress&)> progress = {};
};

// Writes one sequence for each document, in the order of `source`, in the smallest type for the vocabulary.
// An empty document has no sequence. One prefix for each key, or one if there are no keys. All or nothing,
// also of several datasets: only the renames at the end come one after the other. At most 16 MiB of text, or
// 512 KiB for each worker, are in memory at a time, and one batch more. Fails as the source and
// IndexedDatasetWriter do. kInvalidArgument: a text cannot be encoded, or is no JSON with these keys, which
// the message names by file and line; or there are no tokens at all.
Result<std::vector<MadeDataset>> make_datasets(InputSource& source, const Tokenizer& tokenizer,
                                               std::span<const std::string> prefixes,
                                               const MakeDatasetOptions& options = {});

}  // namespace hdt::training
