// options_test.cc: the command line: defaults of nccl-tests, lists, and refusals that name flag and
// expectation.
#include "bench/commbench/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace hdt::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::variant<Options, Information, Status> parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "hdt-commbench");
  return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

Options parsed(std::vector<const char*> arguments) {
  const auto result = parse(std::move(arguments));
  if (const auto* status = std::get_if<Status>(&result)) ADD_FAILURE() << status->message();
  return std::get<Options>(result);
}

std::string refusal(std::vector<const char*> arguments) {
  const auto result = parse(std::move(arguments));
  const auto* status = std::get_if<Status>(&result);
  if (status == nullptr) {
    ADD_FAILURE() << "accepted";
    return "";
  }
  EXPECT_EQ(status->message().find('\n'), std::string::npos) << "one line";
  return status->message();
}

TEST(Options, HaveTheDefaultsOfNcclTests) {
  const Options options = parsed({"allreduce"});
  EXPECT_THAT(options.collectives, ElementsAre(Collective::kAllReduce));
  EXPECT_EQ(options.min_bytes, size_t{32} << 20);
  EXPECT_EQ(options.max_bytes, size_t{32} << 20);
  EXPECT_EQ(options.iterations, 20);
  EXPECT_TRUE(options.check);
  EXPECT_THAT(options.types, ElementsAre(HDT_FLOAT32));
  EXPECT_THAT(options.ops, ElementsAre(HDT_SUM));
  EXPECT_EQ(options.root, 0);
}

TEST(Options, AreReadInShortAndLongForm) {
  const Options options =
      parsed({"reduce",  "sendrecv", "-b",      "8",   "--maxbytes", "1M",     "-f",       "4",
              "-n",      "3",        "-w",      "0",   "-c",         "0",      "-d",       "half,int32",
              "-o",      "max,avg",  "-r",      "all", "--json",     "x.json", "--memory", "hdt",
              "--local", "2",        "--nodes", "3",   "--timeout",  "9"});
  EXPECT_THAT(options.collectives, ElementsAre(Collective::kReduce, Collective::kSendRecv));
  EXPECT_EQ(options.min_bytes, 8u);
  EXPECT_EQ(options.max_bytes, size_t{1} << 20);
  EXPECT_EQ(options.factor, 4u);
  EXPECT_EQ(options.iterations, 3);
  EXPECT_EQ(options.warm_up, 0);
  EXPECT_FALSE(options.check);
  EXPECT_THAT(options.types, ElementsAre(HDT_FLOAT16, HDT_INT32));
  EXPECT_THAT(options.ops, ElementsAre(HDT_MAX, HDT_AVG));
  EXPECT_TRUE(options.all_roots);
  EXPECT_EQ(options.json_file, "x.json");
  EXPECT_TRUE(options.hdt_memory);
  EXPECT_EQ(options.local, 2);
  EXPECT_EQ(options.nodes, 3);
  EXPECT_EQ(options.timeout_s, 9);
}

TEST(Options, AllMeansEverything) {
  const Options options = parsed({"all", "-d", "all", "-o", "all"});
  EXPECT_EQ(options.collectives.size(), 10u);
  EXPECT_EQ(options.types.size(), 14u);
  EXPECT_EQ(options.ops.size(), 8u);
}

TEST(Options, ALoneMinimumOrMaximumIsEnough) {
  EXPECT_EQ(parsed({"allreduce", "-b", "1G"}).max_bytes, size_t{1} << 30);
  EXPECT_EQ(parsed({"allreduce", "-e", "1K"}).min_bytes, 1024u);
}

TEST(Options, RefusalsNameTheFlagAndWhatWasExpected) {
  EXPECT_THAT(refusal({}), HasSubstr("COLLECTIVE: none given; expected"));
  EXPECT_THAT(refusal({"allredcue"}),
              HasSubstr("COLLECTIVE: 'allredcue' is not known; expected all, allreduce"));
  EXPECT_THAT(refusal({"allreduce", "-b", "12Q"}), HasSubstr("-b: '12Q' is not a size; expected"));
  EXPECT_THAT(refusal({"allreduce", "-b", "2M", "-e", "1M"}), HasSubstr("-b: expected at most -e"));
  EXPECT_THAT(refusal({"allreduce", "-i", "8", "-f", "2"}), HasSubstr("-i: expected either"));
  EXPECT_THAT(refusal({"allreduce", "-f", "1"}), HasSubstr("-f: '1' given; expected a whole number from 2"));
  EXPECT_THAT(refusal({"allreduce", "-n", "0"}), HasSubstr("-n: '0' given; expected a whole number from 1"));
  EXPECT_THAT(refusal({"allreduce", "-c", "yes"}),
              HasSubstr("-c: 'yes' given; expected a whole number from 0 to 1"));
  EXPECT_THAT(refusal({"allreduce", "-d", "float31"}),
              HasSubstr("-d: 'float31' is not known; expected all, int32"));
  EXPECT_THAT(refusal({"allreduce", "-o", "sum,,max"}), HasSubstr("-o: '' is not known; expected all, sum"));
  EXPECT_THAT(refusal({"allreduce", "-r", "-1"}), HasSubstr("-r"));
  EXPECT_THAT(refusal({"allreduce", "--memory", "disk"}),
              HasSubstr("--memory: 'disk' given; expected hdt or host"));
  EXPECT_THAT(refusal({"allreduce", "--local", "0"}), HasSubstr("--local: '0' given"));
  EXPECT_THAT(refusal({"allreduce", "--local", "1024", "--nodes", "2"}), HasSubstr("--local"));
  EXPECT_THAT(refusal({"allreduce", "--bogus"}), HasSubstr("--bogus"));
}

TEST(Options, OneEngineRunsOneRoundSeveralRunInTurn) {
  EXPECT_THAT(parsed({"allreduce"}).engines, ElementsAre(EngineKind::kHdt));
  EXPECT_EQ(parsed({"allreduce"}).rounds, 1);
  const Options options = parsed({"allreduce", "--engine", "raw,hdt,mpi"});
  EXPECT_THAT(options.engines, ElementsAre(EngineKind::kRaw, EngineKind::kHdt, EngineKind::kMpi));
  EXPECT_EQ(options.rounds, kDefaultRounds);
  EXPECT_EQ(parsed({"allreduce", "--engine", "all", "--rounds", "3"}).rounds, 3);
  EXPECT_EQ(parsed({"allreduce", "--engine", "all"}).engines.size(), 4u);
  EXPECT_THAT(refusal({"allreduce", "--engine", "nccl"}),
              HasSubstr("--engine: 'nccl' is not known; expected all, hdt"));
  EXPECT_THAT(refusal({"allreduce", "--rounds", "0"}), HasSubstr("--rounds: '0' given"));
}

TEST(Options, DaemonsOfTheirOwnNeedNodesStartedHere) {
  EXPECT_TRUE(parsed({"allreduce", "--nodes", "2", "--daemon", "separate"}).separate_daemons);
  EXPECT_FALSE(parsed({"allreduce", "--nodes", "2"}).separate_daemons);
  EXPECT_EQ(parsed({"allreduce", "--nodes", "2", "--backend", "rdma"}).backend, "rdma");
  EXPECT_THAT(refusal({"allreduce", "--local", "2", "--backend", "rdma"}),
              HasSubstr("--backend: expected only with --nodes"));
  EXPECT_THAT(refusal({"allreduce", "--daemon", "separate"}),
              HasSubstr("--daemon: expected only with --local or --nodes"));
  EXPECT_THAT(refusal({"allreduce", "--local", "2", "--daemon", "none"}),
              HasSubstr("--daemon: 'none' given; expected embedded or separate"));
}

TEST(Options, RootMustBeARankOfTheGroup) {
  const Options options = parsed({"reduce", "-r", "3"});
  EXPECT_TRUE(check_root(options, 4).is_ok());
  EXPECT_THAT(check_root(options, 3).message(),
              HasSubstr("-r: '3' given; expected a rank of the group, 0 to 2"));
}

TEST(Options, HelpShowsExamples) {
  const auto result = parse({"--help"});
  ASSERT_TRUE(std::holds_alternative<Information>(result));
  EXPECT_THAT(std::get<Information>(result).text, HasSubstr("Examples:"));
}

}  // namespace
}  // namespace hdt::bench
