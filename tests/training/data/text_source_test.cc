#include "training/data/text_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/training/data/temporary_folder.h"
#include "training/data/dataset_maker.h"
#include "training/data/indexed_dataset.h"
#include "training/data/tokenizer.h"

namespace hdt::training {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string executable(const TemporaryFolder& folder, std::string_view script) {
  const std::string path = folder.file("bible");
  write_all(path, script);
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path;
}

TEST(Bible, VersesBecomeBooksAndChapters) {
  const auto books =
      parse_bible("Ge1:1 In the beginning.\nGe1:2 And: so 3:4.\nGe2:1 Thus.\n1Sm1:1 Now.\n1Sm10:12 Then.");
  ASSERT_TRUE(books.is_ok()) << books.status().to_string();
  ASSERT_EQ(books.value().size(), 2u);
  EXPECT_EQ(books.value()[0].name, "Ge");
  EXPECT_EQ(books.value()[0].text, "In the beginning.\nAnd: so 3:4.\n\nThus.\n");
  EXPECT_EQ(books.value()[1].name, "1Sm");
  EXPECT_EQ(books.value()[1].text, "Now.\n\nThen.\n");
}

TEST(Bible, OtherLinesAreRefusedByNumber) {
  for (const char* line : {"", "Genesis 1", "  1 In the beginning", "Ge1: In", "Ge:1 In", "1:1 In", "Ge1:1",
                           "Ge1:1 ", "Ge1:x In", "G.e1:1 In"}) {
    const auto books = parse_bible("Ge1:1 In.\n" + std::string(line) + "\nGe1:3 And.\n");
    ASSERT_FALSE(books.is_ok()) << line;
    EXPECT_THAT(books.status().message(), StartsWith("line 2 of the Bible is \"" + std::string(line)));
  }
}

TEST(Bible, TheRealOneIsWhole) {
  const auto books = read_bible();
  ASSERT_TRUE(books.is_ok()) << books.status().to_string();
  ASSERT_EQ(books.value().size(), 66u);
  EXPECT_THAT(books.value()[0].text,
              StartsWith("In the beginning God created the heaven and the earth.\nAnd the"));
  EXPECT_THAT(books.value()[65].text,
              testing::EndsWith("The grace of our Lord Jesus Christ be with you all. Amen.\n"));
  size_t verses = 0;
  size_t gaps = 0;
  for (const Document& book : books.value()) {
    EXPECT_NE(book.text.front(), '\n');
    for (size_t i = 0; i < book.text.size(); ++i) {
      if (book.text[i] != '\n') continue;
      ++(i + 1 < book.text.size() && book.text[i + 1] == '\n' ? gaps : verses);
    }
  }
  EXPECT_EQ(verses, 31102u);
  EXPECT_EQ(gaps + books.value().size(), 1189u);  // chapters
}

TEST(Bible, AMissingCommandNamesThePackage) {
  const auto books = read_bible({.command = "no-such-bible"});
  ASSERT_FALSE(books.is_ok());
  EXPECT_THAT(books.status().message(), HasSubstr("'no-such-bible'"));
  EXPECT_THAT(books.status().message(), HasSubstr("apt-get install bible-kjv"));
}

TEST(Bible, ACommandThatFailsHangsOrStopsShortIsAnError) {
  const TemporaryFolder folder;
  const auto failing =
      read_bible({.command = executable(folder, "#!/bin/sh\necho no data file >&2\nexit 4\n")});
  ASSERT_FALSE(failing.is_ok());
  EXPECT_THAT(failing.status().message(), HasSubstr("ended with exit code 4: no data file"));
  const auto hanging = read_bible({.command = executable(folder, "#!/bin/sh\nsleep 300\n"),
                                   .time_limit = std::chrono::milliseconds(100)});
  EXPECT_EQ(hanging.status().code(), Code::kTimeout);
  const auto short_one =
      read_bible({.command = executable(folder, "#!/bin/sh\necho Ge1:1 In the beginning.\n")});
  ASSERT_FALSE(short_one.is_ok());
  EXPECT_THAT(short_one.status().message(), HasSubstr("printed 1 books, expected 66"));
}

TEST(TextFile, IsOneDocument) {
  const TemporaryFolder folder;
  const std::string text("a\0\xff\n", 4);
  write_all(folder.file("t"), text);
  const auto document = read_text_file(folder.file("t"));
  ASSERT_TRUE(document.is_ok());
  EXPECT_EQ(document.value().text, text);
  EXPECT_EQ(document.value().name, folder.file("t"));
  write_all(folder.file("t"), "");
  EXPECT_THAT(read_text_file(folder.file("t")).status().message(), HasSubstr("is empty"));
  EXPECT_THAT(read_text_file(folder.path()).status().message(), HasSubstr("not a regular file"));
  EXPECT_THAT(read_text_file(folder.file("none")).status().message(), HasSubstr("No such file"));
}

TEST(DatasetMaker, EndsEveryDocument) {
  const TemporaryFolder folder;
  const std::vector<Document> documents = {{"one", "ab"}, {"two", "\xff"}};
  const std::vector<std::string> prefixes = {folder.file("d")};
  const auto made = make_datasets(*documents_source(documents), *make_byte_tokenizer(), prefixes);
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  EXPECT_EQ(made.value()[0].documents, 2u);
  EXPECT_EQ(made.value()[0].tokens, 5u);
  const auto data = IndexedDataset::open(folder.file("d"));
  ASSERT_TRUE(data.is_ok()) << data.status().to_string();
  EXPECT_EQ(data.value()->document_tokens(0),
            (std::vector<int64_t>{'a', 'b', ByteTokenizer::kEndOfDocument}));
  EXPECT_EQ(data.value()->document_tokens(1), (std::vector<int64_t>{255, ByteTokenizer::kEndOfDocument}));
}

}  // namespace
}  // namespace hdt::training
