// input_source.h: the documents that a dataset is made of, read one batch after the other, so that not all of
// them are in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "training/data/text_source.h"

namespace hdt::training {

// Consecutive texts of one file. A batch is the piece of work of one thread.
struct InputBatch {
  std::string source;              // the file, or the name of the only document
  uint64_t first_line = 0;         // in the file, from 1; 0: the batch is one document, and not lines
  std::vector<std::string> texts;  // documents, or lines without their ends

  // Bytes of all texts, with the ends of lines.
  size_t bytes() const;
  // Which text it is, for errors: "FILE, line 12", or the document's name.
  std::string name(size_t text) const;
};

// Where the batches come from. Used by one thread, which owns it.
class InputSource {
 public:
  virtual ~InputSource() = default;
  // Fills `batch` with what comes next; false at the end. A failure names the file.
  virtual Result<bool> next(InputBatch& batch) = 0;
  // The size of all input, for the progress that is shown.
  virtual uint64_t total_bytes() const = 0;
};

// Each file becomes a document; one of them is in memory at a time. Fails as read_text_file().
std::unique_ptr<InputSource> open_text_files(std::vector<std::string> paths);

// Documents that are in memory already, such as those of read_bible().
std::unique_ptr<InputSource> documents_source(std::vector<Document> documents);

// A line that is longer is refused.
inline constexpr size_t kMostLineBytes = size_t{64} << 20;
// A batch of lines ends with the line that makes it as large as this.
inline constexpr size_t kBatchBytes = size_t{256} << 10;

// The lines of the files, in order. A last line needs no end. next() fails with kInvalidArgument where a line
// is longer than `most_line_bytes`, and with kSystem where a file cannot be read. The result is
// kInvalidArgument if a file is missing or a folder.
Result<std::unique_ptr<InputSource>> open_lines(std::vector<std::string> paths,
                                                size_t most_line_bytes = kMostLineBytes);

}  // namespace hdt::training
