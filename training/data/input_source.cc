// input_source.cc: files as a whole, documents in memory, and lines of files. Lines are read and not mapped:
// the buffer for the longest line is all that is needed, and a file that shrinks meanwhile does no harm.
#include "training/data/input_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace hdt::training {
namespace {

class TextFiles final : public InputSource {
 public:
  explicit TextFiles(std::vector<std::string> paths) : paths_(std::move(paths)) {
    for (const std::string& path : paths_) {
      std::error_code error;
      const uint64_t size = std::filesystem::file_size(path, error);
      if (!error) total_ += size;  // otherwise next() fails
    }
  }
  Result<bool> next(InputBatch& batch) override {
    if (next_ == paths_.size()) return false;
    Result<Document> document = read_text_file(paths_[next_++]);
    if (!document.is_ok()) return document.status();
    batch = {.source = document.value().name, .first_line = 0, .texts = {}};
    batch.texts.push_back(std::move(document.value().text));
    return true;
  }
  uint64_t total_bytes() const override { return total_; }

 private:
  std::vector<std::string> paths_;
  size_t next_ = 0;
  uint64_t total_ = 0;
};

class Documents final : public InputSource {
 public:
  explicit Documents(std::vector<Document> documents) : documents_(std::move(documents)) {
    for (const Document& document : documents_) total_ += document.text.size();
  }
  Result<bool> next(InputBatch& batch) override {
    if (next_ == documents_.size()) return false;
    Document& document = documents_[next_++];
    batch = {.source = document.name, .first_line = 0, .texts = {}};
    batch.texts.push_back(std::move(document.text));
    return true;
  }
  uint64_t total_bytes() const override { return total_; }

 private:
  std::vector<Document> documents_;
  size_t next_ = 0;
  uint64_t total_ = 0;
};

class Lines final : public InputSource {
 public:
  Lines(std::vector<std::string> paths, size_t most_line_bytes, uint64_t total)
      : paths_(std::move(paths)),
        most_line_bytes_(most_line_bytes),
        // getline() needs room for one byte more than the longest line, and ends the text with a zero.
        buffer_(std::make_unique_for_overwrite<char[]>(most_line_bytes + 2)),
        total_(total) {}

  // A failure comes after the lines before it, so that the first wrong line of the input is the one that is
  // reported.
  Result<bool> next(InputBatch& batch) override {
    if (!failure_.is_ok()) return failure_;
    for (; file_ < paths_.size(); ++file_, line_ = 0) {
      if (line_ == 0) {
        stream_.close();
        stream_.clear();
        stream_.open(paths_[file_], std::ios::binary);
        if (!stream_.is_open()) return Status::from_errno(paths_[file_], errno);
      }
      batch = {.source = paths_[file_], .first_line = line_ + 1, .texts = {}};
      failure_ = read_lines(batch);
      if (!batch.texts.empty()) return true;
      if (!failure_.is_ok()) return failure_;
    }
    return false;
  }
  uint64_t total_bytes() const override { return total_; }

 private:
  // Adds lines of the open file until the batch is large enough; none at the end of the file.
  Status read_lines(InputBatch& batch) {
    for (size_t bytes = 0; bytes < kBatchBytes;) {
      stream_.getline(buffer_.get(), static_cast<std::streamsize>(most_line_bytes_ + 2));
      auto length = static_cast<size_t>(stream_.gcount());
      if (stream_.bad()) return {Code::kSystem, fmt::format("{}: cannot be read", paths_[file_])};
      if (length == 0 && stream_.eof()) return Status::ok();
      const bool has_end = !stream_.eof() && !stream_.fail();
      if (has_end) --length;  // the end of the line is counted, and not kept
      ++line_;
      if ((stream_.fail() && !stream_.eof()) || length > most_line_bytes_) {
        return {Code::kInvalidArgument, fmt::format("{}, line {} has more than {} bytes: cut the document",
                                                    paths_[file_], line_, most_line_bytes_)};
      }
      batch.texts.emplace_back(buffer_.get(), length);
      bytes += length + 1;
    }
    return Status::ok();
  }

  std::vector<std::string> paths_;
  size_t most_line_bytes_;
  std::unique_ptr<char[]> buffer_;
  std::ifstream stream_;
  size_t file_ = 0;
  uint64_t line_ = 0;  // lines read of the file; 0: it is not open
  Status failure_;     // what read_lines() met
  uint64_t total_;
};

}  // namespace

size_t InputBatch::bytes() const {
  size_t sum = first_line == 0 ? 0 : texts.size();
  for (const std::string& text : texts) sum += text.size();
  return sum;
}

std::string InputBatch::name(size_t text) const {
  return first_line == 0 ? source : fmt::format("{}, line {}", source, first_line + text);
}

std::unique_ptr<InputSource> open_text_files(std::vector<std::string> paths) {
  return std::make_unique<TextFiles>(std::move(paths));
}

std::unique_ptr<InputSource> documents_source(std::vector<Document> documents) {
  return std::make_unique<Documents>(std::move(documents));
}

Result<std::unique_ptr<InputSource>> open_lines(std::vector<std::string> paths, size_t most_line_bytes) {
  uint64_t total = 0;
  for (const std::string& path : paths) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
      return Status(Code::kInvalidArgument, path + " is a folder, expected a file");
    const uint64_t size = std::filesystem::file_size(path, error);
    if (error) return Status(Code::kInvalidArgument, fmt::format("{}: {}", path, error.message()));
    total += size;
  }
  return std::unique_ptr<InputSource>(std::make_unique<Lines>(std::move(paths), most_line_bytes, total));
}

}  // namespace hdt::training
