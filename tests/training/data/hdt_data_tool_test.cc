// hdt-data as its users run it: what it prints, and with which exit status it ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <nlohmann/json.hpp>

#include "tests/training/data/temporary_folder.h"
#include "training/data/command.h"
#include "training/data/tokenizer_process.h"

namespace hdt::training {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

CommandOutput hdt_data(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), HDT_DATA_PROGRAM);
  auto run = run_command(arguments);
  EXPECT_TRUE(run.is_ok()) << run.status().to_string();
  return run.is_ok() ? run.take() : CommandOutput{.exit_code = -1, .out = "", .err = ""};
}

// Wrong usage and refusals: nothing on stdout, one line on stderr.
void expect_failure(const CommandOutput& output, int exit_code, const std::string& message) {
  EXPECT_EQ(output.exit_code, exit_code);
  EXPECT_EQ(output.out, "");
  EXPECT_THAT(output.err, AllOf(StartsWith("hdt-data: "), HasSubstr(message)));
  EXPECT_EQ(std::count(output.err.begin(), output.err.end(), '\n'), 1) << output.err;
}

TEST(HdtData, MakesAndShowsFiles) {
  const TemporaryFolder folder;
  write_all(folder.file("a.txt"), "ab\nab\n");
  write_all(folder.file("b.txt"), "ab\xff");
  const auto made =
      hdt_data({"make", "--text", folder.file("a.txt"), folder.file("b.txt"), "--output", folder.file("d")});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, HasSubstr("2 documents, 11 tokens"));
  const auto info = hdt_data({"info", folder.file("d")});
  EXPECT_EQ(info.exit_code, 0) << info.err;
  EXPECT_THAT(info.out, AllOf(HasSubstr("element type     uint16, 22 bytes of data\n"),
                              HasSubstr("documents        2\n"), HasSubstr("tokens           11\n"),
                              HasSubstr("vocabulary used  5 tokens, 10 to 256\n"),
                              HasSubstr("first tokens     \"ab\\nab\\nab")));
  const auto json_run = hdt_data({"info", folder.file("d"), "--json"});
  EXPECT_EQ(json_run.exit_code, 0) << json_run.err;
  const auto json = nlohmann::json::parse(json_run.out);
  EXPECT_EQ(json["element_type"], "uint16");
  EXPECT_EQ(json["sequences"], 2);
  EXPECT_EQ(json["documents"], 2);
  EXPECT_EQ(json["tokens"], 11);
  EXPECT_EQ(json["vocabulary_used"], 5);
  EXPECT_EQ(json["first_tokens"][0], 97);
  // 3 a, 3 b, 2 newlines, 1 byte of 255, 2 ends.
  const auto part = [](double count) { return -count / 11 * std::log(count / 11); };
  EXPECT_NEAR(json["unigram_entropy_nats"].get<double>(), 2 * part(3) + 2 * part(2) + part(1), 1e-12);
}

TEST(HdtData, EncodesForAnotherProcess) {
  auto tokenizer = start_tokenizer({HDT_DATA_PROGRAM, "tokenize"});
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ(tokenizer.value()->vocab_size(), 257);
  EXPECT_EQ(tokenizer.value()->end_of_document(), 256);
  EXPECT_EQ(tokenizer.value()->encode("ab").value(), (std::vector<int64_t>{97, 98}));
  EXPECT_TRUE(tokenizer.value()->encode("").value().empty());
  EXPECT_EQ(tokenizer.value()->decode(std::vector<int64_t>{99, 256, 100}), "cd");
  // More than a socket holds, both ways.
  std::string text(5 << 20, 'x');
  for (size_t i = 0; i < text.size(); i += 7) text[i] = static_cast<char>(i);
  const auto tokens = tokenizer.value()->encode(text);
  ASSERT_TRUE(tokens.is_ok()) << tokens.status().message();
  EXPECT_EQ(tokens.value().size(), text.size());
  EXPECT_EQ(tokenizer.value()->decode(tokens.value()), text);
}

TEST(HdtData, ATokenizerThatCannotBeStartedSaysWhy) {
  const auto refusal = [](const std::vector<std::string>& arguments) {
    const auto tokenizer = start_tokenizer(arguments);
    return tokenizer.is_ok() ? "started" : tokenizer.status().message();
  };
  EXPECT_EQ(refusal({HDT_DATA_PROGRAM, "tokenize", "--tokenizer-type", "GPT2BPETokenizer"}),
            "--tokenizer-type GPT2BPETokenizer: expected --vocab-file and --merge-file");
  EXPECT_EQ(refusal({"/bin/true"}), "/bin/true: it has ended");
  EXPECT_EQ(refusal({"/bin/echo", "some text, and no frame of a tokenizer"}),
            "/bin/echo: it speaks another protocol");
  EXPECT_THAT(refusal({"/no/such/program"}), HasSubstr("cannot run /no/such/program"));
  expect_failure(hdt_data({"tokenize"}), 1, "standard input is no socket; hdt-train starts this command");
}

TEST(HdtData, MakesTheBible) {
  const TemporaryFolder folder;
  const auto made = hdt_data({"make", "--bible", "--output", folder.file("kjv")});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  const auto info = nlohmann::json::parse(hdt_data({"info", folder.file("kjv"), "--json"}).out);
  EXPECT_EQ(info["documents"], 66);
  EXPECT_THAT(info["first_text"].get<std::string>(), StartsWith("In the beginning God created the heaven"));
  EXPECT_GT(info["unigram_entropy_nats"].get<double>(), 2.8);
  EXPECT_LT(info["unigram_entropy_nats"].get<double>(), 3.2);
}

TEST(HdtData, MakesADatasetForEachKeyOfJsonLines) {
  const TemporaryFolder folder;
  write_all(folder.file("a.jsonl"),
            "{\"text\": \"ab\", \"title\": \"A\"}\n{\"text\": \"c\", \"title\": \"C\"}\n");
  write_all(folder.file("b.jsonl"), "{\"text\": \"d\", \"title\": \"\"}\n");
  const auto made =
      hdt_data({"make", "--input", folder.file("a.jsonl"), folder.file("b.jsonl"), "--json-keys", "title",
                "text", "--workers", "3", "--append-eod", "--output", folder.file("d")});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  EXPECT_THAT(made.out, AllOf(HasSubstr("d_title_document.bin and "), HasSubstr("3 documents, 4 tokens"),
                              HasSubstr("d_text_document.bin and "), HasSubstr("3 documents, 7 tokens")));
  EXPECT_THAT(folder.names(),
              testing::ElementsAre("a.jsonl", "b.jsonl", "d_text_document.bin", "d_text_document.idx",
                                   "d_title_document.bin", "d_title_document.idx"));
  // "text" alone, and no ends, are the defaults.
  const auto plain = hdt_data({"make", "--input", folder.file("a.jsonl"), "--output", folder.file("e")});
  EXPECT_THAT(plain.out, AllOf(HasSubstr("e_text_document.bin"), HasSubstr("2 documents, 3 tokens")));
  const auto info = nlohmann::json::parse(hdt_data({"info", folder.file("d_text_document"), "--json"}).out);
  EXPECT_EQ(info["documents"], 3);
}

TEST(HdtData, TextFilesAreTheSameWithMoreWorkers) {
  const TemporaryFolder folder;
  std::vector<std::string> files;
  for (int i = 0; i < 20; ++i) {
    files.push_back(folder.file(std::to_string(i)));
    write_all(files.back(),
              std::string(static_cast<size_t>(1 + 1000 * (19 - i)), static_cast<char>('a' + i)));
  }
  for (const std::string workers : {"1", "4"}) {
    std::vector<std::string> arguments = {"make",      "--output", folder.file("d" + workers),
                                          "--workers", workers,    "--text"};
    arguments.insert(arguments.end(), files.begin(), files.end());
    const auto made = hdt_data(arguments);
    EXPECT_EQ(made.exit_code, 0) << made.err;
  }
  EXPECT_EQ(read_all(folder.file("d1.bin")), read_all(folder.file("d4.bin")));
  EXPECT_EQ(read_all(folder.file("d1.idx")), read_all(folder.file("d4.idx")));
}

TEST(HdtData, WrongUsageEndsWith2) {
  const TemporaryFolder folder;
  const std::string out = folder.file("d");
  expect_failure(hdt_data({}), 2, "subcommand is required");
  expect_failure(hdt_data({"convert"}), 2, "'convert' is no subcommand, expected make or info");
  expect_failure(hdt_data({"make", "--output", out}), 2, "[--text,--input,--bible]");
  expect_failure(hdt_data({"make", "--bible", "--text", "a", "--output", out}), 2,
                 "[--text,--input,--bible]");
  expect_failure(hdt_data({"make", "--input", "a", "--text", "a", "--output", out}), 2,
                 "[--text,--input,--bible]");
  expect_failure(hdt_data({"make", "--bible", "--append-eod", "--output", out}), 2,
                 "--append-eod: expected --input");
  expect_failure(hdt_data({"make", "--bible", "--json-keys", "a", "--output", out}), 2,
                 "--json-keys: expected --input");
  expect_failure(hdt_data({"make", "--input", "a", "--json-keys", "a", "b", "a", "--output", out}), 2,
                 "--json-keys: a key is there twice");
  expect_failure(hdt_data({"make", "--input", "a", "--json-keys", "../a", "--output", out}), 2,
                 "--json-keys: '../a' given");
  expect_failure(hdt_data({"make", "--bible", "--workers", "0", "--output", out}), 2, "--workers: '0' given");
  expect_failure(hdt_data({"make", "--bible"}), 2, "--output");
  expect_failure(hdt_data({"make", "--bible", "--output", out, "--split", "x"}), 2, "--split");
  expect_failure(hdt_data({"info"}), 2, "prefix");
  EXPECT_TRUE(folder.names().empty());
}

TEST(HdtData, RefusedFilesEndWith1) {
  const TemporaryFolder folder;
  expect_failure(hdt_data({"info", folder.file("none")}), 1, "none.idx: No such file");
  expect_failure(hdt_data({"make", "--text", folder.file("none"), "--output", folder.file("d")}), 1,
                 "none: No such");
  write_all(folder.file("foreign.idx"),
            "\x7f"
            "ELF and more that is longer than a header of an index");
  write_all(folder.file("foreign.bin"), "x");
  expect_failure(hdt_data({"info", folder.file("foreign")}), 1,
                 "not a Megatron index: starts with \"\\x7fELF");
  write_all(folder.file("foreign.idx"), "MMIDIDX");
  expect_failure(hdt_data({"info", folder.file("foreign")}), 1,
                 "truncated: 7 bytes, expected at least the 34");
  write_all(folder.file("empty.txt"), "");
  expect_failure(hdt_data({"make", "--text", folder.file("empty.txt"), "--output", folder.file("d")}), 1,
                 "is empty");
  write_all(folder.file("a.jsonl"), "{\"text\": \"a\"}\n{\"text\": 1}\n");
  expect_failure(hdt_data({"make", "--input", folder.file("a.jsonl"), "--output", folder.file("d")}), 1,
                 "a.jsonl, line 2: 'text' is of type number, expected a string");
  expect_failure(hdt_data({"make", "--input", folder.file("none"), "--output", folder.file("d")}), 1,
                 "--input: " + folder.file("none") + ": No such file");
  EXPECT_THAT(folder.names(), testing::ElementsAre("a.jsonl", "empty.txt", "foreign.bin", "foreign.idx"));
}

TEST(HdtData, AMissingBibleNamesThePackage) {
  const TemporaryFolder folder;
  const std::string path = ::getenv("PATH");
  ASSERT_EQ(::setenv("PATH", folder.path().c_str(), 1), 0);
  const auto made = hdt_data({"make", "--bible", "--output", folder.file("d")});
  ASSERT_EQ(::setenv("PATH", path.c_str(), 1), 0);
  expect_failure(made, 1, "apt-get install bible-kjv");
  EXPECT_TRUE(folder.names().empty());
}

TEST(HdtData, HelpHasExamples) {
  for (const auto& arguments :
       std::vector<std::vector<std::string>>{{"--help"}, {"make", "--help"}, {"info", "-h"}}) {
    const auto help = hdt_data(arguments);
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, AllOf(HasSubstr("Example"), HasSubstr("  hdt-data ")));
  }
}

}  // namespace
}  // namespace hdt::training
