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

}  // namespace hdt::training
