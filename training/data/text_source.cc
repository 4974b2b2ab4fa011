// text_source.cc: reads text files, and parses what `bible` prints. The command's output is checked as
// any foreign text: a verse on each line, and 66 books.
#include "training/data/text_source.h"

#include <fmt/format.h>

#include <cctype>
#include <limits>

#include "training/data/command.h"
#include "training/data/mapped_file.h"

namespace hdt::training {
namespace {

constexpr size_t kBibleBooks = 66;
// A document is one sequence, whose length is an int32, with its end-of-document token.
constexpr size_t kMaxFileBytes = std::numeric_limits<int32_t>::max() - 1;

// A line of the output, cut into its parts. Borrowed from it.
struct Verse {
  std::string_view book;     // "Ge", "1Sm"
  std::string_view chapter;  // "12"
  std::string_view text;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "1Sm3:10 And the LORD came, ..." becomes 1Sm, 3, And the LORD came, .... The chapter is the digits
// right before the colon; what is before them names the book, which may begin with a digit. False: the
// line is no verse.
bool parse_verse(std::string_view line, Verse& verse) {
  // The reference ends at the first blank.
  const size_t space = line.find(' ');
  const size_t colon = line.find(':');
  if (space == std::string_view::npos || colon == std::string_view::npos || colon + 1 >= space) return false;
  for (const char c : line.substr(colon + 1, space - colon - 1)) {
    if (!is_digit(c)) return false;
  }
  size_t chapter = colon;
  while (chapter > 0 && is_digit(line[chapter - 1])) --chapter;
  // There must be a book, a chapter and a text.
  if (chapter == 0 || chapter == colon || space + 1 == line.size()) return false;
  for (const char c : line.substr(0, chapter)) {
    if (!is_digit(c) && std::isalpha(static_cast<unsigned char>(c)) == 0) return false;
  }
  verse = {line.substr(0, chapter), line.substr(chapter, colon - chapter), line.substr(space + 1)};
  return true;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

Result<Document> read_text_file(const std::string& path) {
  const auto file = MappedFile::open(path);
  if (!file.is_ok()) return file.status();
  const auto bytes = file.value().bytes();
  if (bytes.empty()) return Status(Code::kInvalidArgument, path + " is empty, expected text");
  if (bytes.size() > kMaxFileBytes) {
    return Status(Code::kInvalidArgument,
                  fmt::format("{} has {} bytes, one document may have {}: split the file", path, bytes.size(),
                              kMaxFileBytes));
  }
  return Document{path, std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())};
}

Result<std::vector<Document>> parse_bible(std::string_view printed) {
  std::vector<Document> books;
  std::string_view chapter;
  for (size_t number = 1; !printed.empty(); ++number) {
    const size_t end = printed.find('\n');
    const std::string_view line = printed.substr(0, end);
    printed.remove_prefix(end == std::string_view::npos ? printed.size() : end + 1);
    Verse verse;
    if (!parse_verse(line, verse)) {
      return Status(
          Code::kInvalidArgument,
          fmt::format("line {} of the Bible is \"{}\", expected a verse such as \"Ge1:1 In the beginning\"",
                      number, line.substr(0, 60)));
    }
    // Books and chapters begin where the reference changes.
    const bool new_book = books.empty() || books.back().name != verse.book;
    if (new_book) books.push_back({std::string(verse.book), ""});
    std::string& text = books.back().text;
    if (!new_book && chapter != verse.chapter) text += '\n';
    chapter = verse.chapter;
    text.append(verse.text).append("\n");
  }
  return books;
}

Result<std::vector<Document>> read_bible(const BibleOptions& options) {
  // -f switches from pages with wrapped lines, the default, to one verse on each line.
  CommandLimits limits;
  limits.time = options.time_limit;
  auto run = run_command({options.command, "-f", "Gen1:1-Rev22:21"}, limits);
  if (!run.is_ok() && run.status().code() == Code::kTimeout) return run.status();
  if (!run.is_ok()) {
    return Status(run.status().code(),
                  run.status().message() + " (Debian package bible-kjv: apt-get install bible-kjv)");
  }
  const CommandOutput& output = run.value();
  if (output.exit_code != 0) {
    return Status(Code::kSystem, fmt::format("'{}' ended with exit code {}: {}", options.command,
                                             output.exit_code, first_line(output.err)));
  }
  auto books = parse_bible(output.out);
  if (books.is_ok() && books.value().size() != kBibleBooks) {
    return Status(Code::kSystem,
                  fmt::format("'{}' printed {} books, expected {}: is the package bible-kjv-text whole?",
                              options.command, books.value().size(), kBibleBooks));
  }
  return books;
}

}  // namespace hdt::training
