// indexed_index.h: parses and checks an .idx file that is held in memory. It is separate from the file
// access of indexed_dataset.h, so that tests can give it any bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/data/indexed_format.h"

namespace hdt::training {

// A checked index. Both vectors are ascending and begin with 0.
struct DatasetIndex {
  ElementType type = ElementType::kUint16;
  std::vector<uint64_t> token_starts;     // tokens before each sequence, then the count of all
  std::vector<uint64_t> document_starts;  // first sequence of each document, then the number of sequences
};

// `data_bytes` is the size of the .bin file; `prefix` is for messages only. kInvalidArgument says what
// is wrong.
//
// The sequences must not only stay inside the data, but follow each other without gap or overlap and
// fill it. Every writer of this format makes them so; anything else is damage, or a pair of files that
// do not belong together. It also makes the byte offset of a sequence a multiple of its start.
Result<DatasetIndex> parse_dataset_index(std::span<const std::byte> bytes, uint64_t data_bytes,
                                         const std::string& prefix);

// Some facts of an index that stays in its file.
struct IndexSketch {
  ElementType type = ElementType::kUint16;
  uint64_t sequences = 0;
  uint64_t document_entries = 0;
  uint64_t tokens = 0;
};

// How much sketch_dataset_index() looks at: so many runs of consecutive entries, spread over all of them.
struct SketchSize {
  uint64_t runs = 64;     // 2 or more
  uint64_t entries = 64;  // of a run; 1 or more
};

// Checks the header, both ends, and runs of entries between them; a small index is checked whole. It costs
// the same for an index of any size. Entries that were not looked at are checked when token_start() uses
// them. The other arguments and the errors are those of parse_dataset_index().
Result<IndexSketch> sketch_dataset_index(std::span<const std::byte> bytes, uint64_t data_bytes,
                                         const std::string& prefix, const SketchSize& size = {});

// The number of tokens before `sequence`, at most sketch.sequences, which gives that of all. The bytes are
// those of the sketch. kInvalidArgument unless the sequence begins where the one before ends.
Result<uint64_t> token_start(std::span<const std::byte> bytes, const IndexSketch& sketch, uint64_t sequence,
                             const std::string& prefix);

}  // namespace hdt::training
