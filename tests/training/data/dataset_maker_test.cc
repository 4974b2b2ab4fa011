// dataset_maker_test.cc: datasets from JSON lines: the same whatever the threads, and nothing of a wrong
// input.
#include "training/data/dataset_maker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/training/data/temporary_folder.h"
#include "training/data/encoding_progress.h"
#include "training/data/indexed_dataset.h"

namespace hdt::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DatasetMakerTest : public ::testing::Test {
 protected:
  // Makes datasets of the keys from the files; prefixes are those in prefixes().
  Result<std::vector<MadeDataset>> make(std::vector<std::string> files, MakeDatasetOptions options,
                                        size_t most_line_bytes = kMostLineBytes) {
    const auto source = open_lines(std::move(files), most_line_bytes);
    if (!source.is_ok()) return source.status();
    return make_datasets(*source.value(), *make_byte_tokenizer(), prefixes(options.json_keys), options);
  }
  std::vector<std::string> prefixes(const std::vector<std::string>& keys) const {
    std::vector<std::string> all;
    for (const std::string& key : keys) all.push_back(folder_.file("d_" + key));
    return all;
  }
  // Makes of one file with these lines and key "text" fails with this message, and leaves nothing.
  void expect_refused(const std::string& lines, const std::string& message) {
    write_all(folder_.file("in.jsonl"), lines);
    for (const int workers : {1, 4}) {
      const auto made = make({folder_.file("in.jsonl")}, {.json_keys = {"text"}, .workers = workers}, 100);
      EXPECT_FALSE(made.is_ok()) << lines;
      EXPECT_THAT(made.status().message(), HasSubstr(message));
      EXPECT_THAT(folder_.names(), ElementsAre("in.jsonl"));
    }
  }

  TemporaryFolder folder_;
};

// Text with line ends, quotes, NULs and characters of all lengths.
std::string random_text(std::mt19937_64& random) {
  const std::vector<std::string> pieces = {"a",  "word ",    "\n",   "\"",   "\\", std::string(1, '\0'),
                                           "é",  "\xc2\x80", "日本", "🙂", "{}", "[",
                                           "\t", "\x7f"};
  std::string text;
  // Some are empty, few are longer than a batch.
  const size_t size = random() % 8 == 0 ? 0 : random() % 400 == 0 ? 100'000 : random() % 60;
  for (size_t i = 0; i < size; ++i) text += pieces[random() % pieces.size()];
  return text;
}

TEST_F(DatasetMakerTest, IsTheSameWhateverTheWorkers) {
  const char* const given = std::getenv("HDT_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::strtoull(given, nullptr, 10) : std::random_device()();
  SCOPED_TRACE(::testing::Message() << "HDT_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  std::vector<std::string> files;
  std::vector<std::vector<std::string>> expected(2);
  for (int file = 0; file < 3; ++file) {
    std::string lines;
    for (int i = 0; i < 2000; ++i) {
      const nlohmann::json json = {{"id", i}, {"text", random_text(random)}, {"title", random_text(random)}};
      expected[0].push_back(json["text"]);
      expected[1].push_back(json["title"]);
      // Escaped and not, as both kinds of writers exist. The last line of a file has an end or none.
      lines += json.dump(-1, ' ', i % 2 == 0) + (i == 1999 && file == 1 ? "" : "\n");
    }
    files.push_back(folder_.file("in" + std::to_string(file)));
    write_all(files.back(), lines);
  }
  const std::vector<std::string> keys = {"text", "title"};
  std::vector<std::string> first;  // the files of one worker
  for (const int workers : {1, 2, 4, 7}) {
    const auto made = make(files, {.json_keys = keys, .append_eod = true, .workers = workers});
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    std::vector<std::string> bytes;
    for (const std::string& prefix : prefixes(keys)) {
      bytes.push_back(read_all(prefix + ".bin"));
      bytes.push_back(read_all(prefix + ".idx"));
    }
    if (workers > 1) {
      EXPECT_TRUE(bytes == first) << workers;  // not EXPECT_EQ, which would print megabytes
      continue;
    }
    first = bytes;
    for (size_t key = 0; key < keys.size(); ++key) {
      const auto data = IndexedDataset::open(prefixes(keys)[key]);
      ASSERT_TRUE(data.is_ok()) << data.status().to_string();
      ASSERT_EQ(data.value()->document_count(), expected[key].size());
      EXPECT_EQ(made.value()[key].documents, expected[key].size());
      EXPECT_EQ(made.value()[key].tokens, data.value()->token_count());
      for (size_t i = 0; i < expected[key].size(); ++i) {
        std::vector<int64_t> tokens = ByteTokenizer::encode(expected[key][i]);
        if (!tokens.empty()) tokens.push_back(ByteTokenizer::kEndOfDocument);
        ASSERT_EQ(data.value()->document_tokens(i), tokens) << keys[key] << " " << i;
      }
    }
  }
}

TEST_F(DatasetMakerTest, EndsDocumentsOnlyIfAsked) {
  write_all(folder_.file("in"), "{\"text\": \"ab\"}\n{\"text\": \"\"}\r\n {\"text\":\"c\"}");
  for (const bool append_eod : {false, true}) {
    const auto made = make({folder_.file("in")}, {.json_keys = {"text"}, .append_eod = append_eod});
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    EXPECT_EQ(made.value()[0].documents, 3u);
    EXPECT_EQ(made.value()[0].tokens, append_eod ? 5u : 3u);
    const auto data = IndexedDataset::open(folder_.file("d_text"));
    ASSERT_TRUE(data.is_ok());
    EXPECT_EQ(data.value()->document_tokens(1), std::vector<int64_t>{});
    std::vector<int64_t> last = {'c'};
    if (append_eod) last.push_back(ByteTokenizer::kEndOfDocument);
    EXPECT_EQ(data.value()->document_tokens(2), last);
  }
}

TEST_F(DatasetMakerTest, NamesTheLineThatIsWrong) {
  const std::string good = "{\"text\": \"abc\"}\n";
  const std::string in = folder_.file("in.jsonl");
  expect_refused(good + "{\"text\": \"abc\"\n" + good, in + ", line 2: it is no JSON");
  expect_refused(good + good + "\n" + good, in + ", line 3: it is no JSON");
  expect_refused("{\"text\": \"a\"} {}\n", in + ", line 1: it is no JSON");
  expect_refused("{\"title\": \"abc\"}\n", in + ", line 1: it has no key 'text'");
  expect_refused("[\"text\"]", in + ", line 1: it is JSON of type array, expected an object");
  expect_refused("{\"text\": [\"abc\"]}", in + ", line 1: 'text' is of type array, expected a string");
  expect_refused(good + "{\"text\": \"\xff\"}\n", in + ", line 2: it is not UTF-8");
  expect_refused(good + "{\"text\": \"\xed\xa0\x80\"}\n", in + ", line 2: it is not UTF-8");
  expect_refused("{\"text\": \"\\ud800\"}\n", in + ", line 1: it is no JSON");
  expect_refused(good + std::string(70, '[') + "\n", in + ", line 2: values within values");
  expect_refused(good + std::string(101, ' ') + "\n" + good, in + ", line 2 has more than 100 bytes");
  expect_refused(good + std::string(101, ' '), in + ", line 2 has more than 100 bytes");
  // The first wrong line is named, also before one that cannot be read.
  expect_refused("{}\n" + std::string(101, ' '), in + ", line 1: it has no key");
  expect_refused("{\"text\": \"\"}\n", "there is no text in the input");
  expect_refused("", "there is no text in the input");
}

TEST_F(DatasetMakerTest, TakesALineOfTheLimit) {
  const std::string line = "{\"text\": \"" + std::string(88, 'x') + "\"}";
  ASSERT_EQ(line.size(), 100u);
  for (const std::string& lines : {line, line + "\n", line + "\n" + line + "\n"}) {
    write_all(folder_.file("in"), lines);
    const auto made = make({folder_.file("in")}, {.json_keys = {"text"}, .append_eod = false}, 100);
    ASSERT_TRUE(made.is_ok()) << made.status().to_string();
    EXPECT_EQ(made.value()[0].tokens, 88 * made.value()[0].documents);
  }
}

TEST_F(DatasetMakerTest, AFailureLeavesTheOldDatasets) {
  write_all(folder_.file("in"), "{\"text\": \"ab\", \"title\": \"c\"}\n");
  const std::vector<std::string> keys = {"text", "title"};
  ASSERT_TRUE(make({folder_.file("in")}, {.json_keys = keys}).is_ok());
  const std::string before = read_all(folder_.file("d_text.bin"));
  const std::vector<std::string> names = folder_.names();
  // The second key has no token in any line.
  write_all(folder_.file("in"), "{\"text\": \"other\", \"title\": \"\"}\n");
  EXPECT_FALSE(make({folder_.file("in")}, {.json_keys = keys}).is_ok());
  EXPECT_EQ(read_all(folder_.file("d_text.bin")), before);
  EXPECT_EQ(folder_.names(), names);
}

TEST_F(DatasetMakerTest, RefusesFilesThatCannotBeRead) {
  const MakeDatasetOptions options{.json_keys = {"text"}};
  EXPECT_THAT(make({folder_.file("none")}, options).status().message(), HasSubstr("No such file"));
  EXPECT_THAT(make({folder_.path()}, options).status().message(), HasSubstr("is a folder"));
  EXPECT_TRUE(folder_.names().empty());
}

// A source that never ends would fill memory if nothing bounded what is read ahead.
TEST_F(DatasetMakerTest, ReadsNoFurtherAheadThanTheLimit) {
  class Counted final : public InputSource {
   public:
    Result<bool> next(InputBatch& batch) override {
      if (read == 200) return false;
      batch = {.source = "counted", .first_line = ++read, .texts = {std::string(size_t{1} << 20, 'x')}};
      return true;
    }
    uint64_t total_bytes() const override { return 0; }
    uint64_t read = 0;
  } source;
  uint64_t most = 0;
  const std::vector<std::string> prefix = {folder_.file("d")};
  const auto progress = [&](const MakeProgress& done) {
    most = std::max(most, source.read - done.documents);
  };
  const auto made =
      make_datasets(source, *make_byte_tokenizer(), prefix, {.workers = 3, .progress = progress});
  ASSERT_TRUE(made.is_ok()) << made.status().to_string();
  EXPECT_EQ(made.value()[0].documents, 200u);
  EXPECT_GT(most, 1u);
  EXPECT_LE(most, 17u);  // MiB, and one batch more
}

TEST(EncodingProgressTest, ShowsRatesShareAndTimeLeft) {
  for (const bool in_place : {false, true}) {
    std::ostringstream out;
    std::chrono::steady_clock::time_point now{std::chrono::seconds(50)};
    EncodingProgress progress(
        out, {.total_bytes = 40'000'000, .in_place = in_place, .columns = 0, .clock = [&] { return now; }});
    now += std::chrono::milliseconds(in_place ? 199 : 4999);
    progress.update({.documents = 5, .bytes = 5});
    EXPECT_EQ(out.str(), "");
    now = std::chrono::steady_clock::time_point{std::chrono::seconds(60)};
    progress.update({.documents = 12345, .bytes = 10'000'000});
    progress.finish();
    EXPECT_EQ(out.str(), std::string(in_place ? "\r" : "") +
                             "12,345 documents | 1,235 documents/s | 1.0 MB/s | 25 % | 30s left\n");
  }
}

}  // namespace
}  // namespace hdt::training
