// hdt-data: makes Megatron indexed datasets (PREFIX.bin, PREFIX.idx) from text, and shows what is in
// one. main() parses the command line; commands.h has the work.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "base/run_main.h"
#include "tools/common/flag_checks.h"
#include "tools/common/tokenizer_flags.h"
#include "tools/hdt-data/commands.h"

namespace {

constexpr int kExitRefused = 1;
constexpr int kExitUsage = 2;
// More threads than any machine has processors for.
constexpr int kMostWorkers = 1024;

constexpr const char* kExamples =
    "Examples:\n"
    "  hdt-data make --bible --output data/kjv            the King James text of Debian's bible-kjv\n"
    "  hdt-data make --text a.txt b.txt --output data/ab  one document a file\n"
    "  hdt-data make --input web.jsonl --append-eod --workers 8 --output data/web\n"
    "                                                     one document a line, in "
    "data/web_text_document.bin, .idx\n"
    "  hdt-data info data/kjv                             what is in data/kjv.bin and data/kjv.idx\n"
    "  hdt-data info data/kjv --json                      the same for programs\n"
    "\n"
    "Exit status: 0 done, 1 a file or the text source was refused, 2 wrong usage.";

// Prints the message as one line on standard error, and returns the exit code.
int fail(int exit_code, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  fmt::print(stderr, "hdt-data: {}\n", message);
  return exit_code;
}

int run(int argc, char** argv) {
  CLI::App app(
      "Makes Megatron indexed datasets (PREFIX.bin, PREFIX.idx) from text, by default with one token a byte "
      "(256 ends a document), and shows what is in one.");
  app.footer(kExamples);
  hdt::tools::last_one_counts(app);
  app.require_subcommand(1);

  hdt::tools::MakeOptions make;
  CLI::App* make_app = app.add_subcommand("make", "make a dataset from text");
  make_app->footer("Example:\n  hdt-data make --text a.txt b.txt --output data/ab");
  // An option group with require_option(1) makes CLI11 refuse both, and neither.
  auto* source = make_app->add_option_group("source", "where the text comes from (one of them)");
  source->add_option("--text", make.texts, "text files; each becomes one document")
      ->type_name("FILE")
      ->check(hdt::tools::path_name());
  source
      ->add_option("--input", make.inputs,
                   "files of JSON lines: an object on each line, one document of it for each of --json-keys")
      ->type_name("FILE")
      ->check(hdt::tools::path_name());
  source->add_flag("--bible", make.bible,
                   "the King James text of the command `bible`; each book becomes one document");
  source->require_option(1);
  make_app
      ->add_option(
          "--json-keys", make.json_keys,
          "whose text is taken from --input; the dataset of a key is PREFIX_KEY_document, as Megatron "
          "names it")
      ->type_name("KEY")
      ->trigger_on_parse()
      ->capture_default_str();
  make_app->add_flag(
      "--append-eod", make.append_eod,
      "end the documents of --input with the end-of-document token (those of --text and --bible "
      "always end with it, if the tokenizer has it)");
  make_app->add_option("--workers", make.workers, "threads that encode; the datasets do not depend on it")
      ->check(hdt::tools::whole(1, kMostWorkers))
      ->type_name("INT")
      ->capture_default_str();
  hdt::tools::add_tokenizer_flags(*make_app, make.tokenizer, hdt::training::tokenizer_types());
  make_app
      ->add_option(
          "--output", make.output,
          "writes PREFIX.bin and PREFIX.idx (--input: PREFIX_KEY_document.bin and .idx); existing ones are "
          "replaced")
      ->type_name("PREFIX")
      ->check(hdt::tools::path_name())
      ->required();

  hdt::tools::InfoOptions info;
  CLI::App* info_app = app.add_subcommand("info", "show what is in a dataset");
  info_app->footer("Example:\n  hdt-data info data/kjv --json");
  info_app->add_option("prefix", info.prefix, "reads PREFIX.bin and PREFIX.idx")
      ->type_name("PREFIX")
      ->required();
  info_app->add_flag("--json", info.json, "print JSON");

  hdt::training::TokenizerChoice served;
  CLI::App* tokenize_app = app.add_subcommand(
      "tokenize",
      "encode for hdt-train, which starts this where libtorch and the tokenizer's library cannot "
      "be in one process");
  hdt::tools::add_tokenizer_flags(*tokenize_app, served, hdt::training::tokenizer_types());

  // CLI11 would only say that a subcommand is missing, and not what the wrong word was.
  const auto is_named = [&](const CLI::App* command) { return command->check_name(argv[1]); };
  if (argc > 1 && argv[1][0] != '-' && std::ranges::none_of(app.get_subcommands({}), is_named)) {
    return fail(kExitUsage,
                fmt::format("'{}' is no subcommand, expected make or info (see hdt-data --help)", argv[1]));
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return fail(kExitUsage, std::string(error.what()) + " (see hdt-data --help)");
  }
  if (make_app->parsed()) {
    const std::string wrong = hdt::tools::check_make_options(make);
    if (!wrong.empty()) return fail(kExitUsage, wrong + " (see hdt-data --help)");
  }
  // require_subcommand(1) leaves exactly one of the three.
  const hdt::Status status = make_app->parsed()   ? hdt::tools::make_command(make)
                             : info_app->parsed() ? hdt::tools::info_command(info)
                                                  : hdt::tools::tokenize_command(served);
  if (!status.is_ok()) return fail(kExitRefused, status.message());
  // A full disk shows at the latest when the buffer is written.
  if (std::fflush(stdout) != 0) return fail(kExitRefused, "cannot write to stdout");
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return hdt::run_main("hdt-data", kExitRefused, [&] { return run(argc, argv); });
}
