// environment_mpirun_test.cc: PMIx and the launcher's variables, with a real mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace {

using ::testing::HasSubstr;

struct Outcome {
  int exit_code = -1;
  std::string output;
};

Outcome run(const std::string& command) {
  Outcome outcome;
  // Leak reports of MPI's own libraries are not ours to judge.
  FILE* pipe = popen(("ASAN_OPTIONS=detect_leaks=0 timeout -k 5 90 " + command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char chunk[4096];
  for (size_t got = 0; (got = fread(chunk, 1, sizeof chunk, pipe)) > 0;) outcome.output.append(chunk, got);
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

// Only loopback, so that the test needs no network; no rtc/hwloc, whose shared topology sometimes collides
// with what is mapped already and crashes the launcher (Open MPI 4.1.4); --oversubscribe, as there may be
// fewer cores than ranks.
std::string mpirun(const std::string& arguments) {
  return std::string(HDT_MPIRUN) + (geteuid() == 0 ? " --allow-run-as-root" : "") +
         " --oversubscribe --bind-to none --mca rtc ^hwloc --mca oob_tcp_if_include lo --mca btl "
         "self,vader,tcp --mca "
         "btl_tcp_if_include lo " +
         arguments;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Mpirun, AllRanksGetTheIdsOfRankZero) {
  const Outcome outcome = run(mpirun("-np 4 " HDT_EXCHANGE_PROGRAM " rounds"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(count(outcome.output, "4 ranks agree"), 4U) << outcome.output;
}

// Two launcher daemons, each with a PMIx server of its own, so that the id has to travel between servers.
TEST(Mpirun, AcrossNodes) {
  const std::string two_nodes =
      "--mca plm_rsh_agent " HDT_LOCAL_SHELL " --host hdt-n1:2,hdt-n2:2 -np 4 " HDT_EXCHANGE_PROGRAM;
  const Outcome detected = run(mpirun(two_nodes + " detect"));
  EXPECT_EQ(detected.exit_code, 0) << detected.output;
  EXPECT_EQ(count(detected.output, "of 4, 2 on its node"), 4U) << detected.output;
  const Outcome outcome = run(mpirun(two_nodes + " rounds"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(count(outcome.output, "4 ranks agree"), 4U) << outcome.output;
}

TEST(Mpirun, BesideMpi) {
  for (const std::string mode : {"early", "late"}) {
    const Outcome outcome = run(mpirun("-np 4 " HDT_BESIDE_MPI_PROGRAM " " + mode));
    EXPECT_EQ(outcome.exit_code, 0) << mode << ": " << outcome.output;
    EXPECT_EQ(count(outcome.output, "4 ranks agree"), mode == "early" ? 6U : 4U) << outcome.output;
  }
}

TEST(Mpirun, AKeyThatNeverComesEndsAtTheDeadline) {
  const Outcome outcome = run(mpirun("-np 2 " HDT_EXCHANGE_PROGRAM " absent"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(count(outcome.output, "rank 0 has not published absent"), 2U) << outcome.output;
}

// The other ranks hear why, and do not wait for their deadline.
TEST(Mpirun, ARankZeroWithoutAnIdFailsTheOthers) {
  const Outcome outcome = run(mpirun("-np 3 " HDT_FAILURE_PROGRAM));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(count(outcome.output, "rank 0 could not publish the group's id"), 2U) << outcome.output;
  EXPECT_EQ(count(outcome.output, "/nonexistent/hdtcommd.sock: No such file"), 3U) << outcome.output;
}

TEST(Mpirun, VariablesAgreeWithPmix) {
  const Outcome outcome = run(mpirun("-np 3 " HDT_EXCHANGE_PROGRAM " detect"));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  for (const char* line : {"detected rank 0 of 3", "detected rank 1 of 3", "detected rank 2 of 3"}) {
    EXPECT_THAT(outcome.output, HasSubstr(line));
  }
}

TEST(WithoutMpirun, TheErrorSaysWhatToDo) {
  const Outcome outcome = run("env -u PMIX_NAMESPACE -u PMIX_RANK " HDT_EXCHANGE_PROGRAM " rounds");
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("no PMIx server: PMIX_NAMESPACE is not set"));
  EXPECT_THAT(outcome.output, HasSubstr("HDT_RENDEZVOUS=host:port"));
}

TEST(WithoutMpirun, AServerThatIsGoneIsAnError) {
  const Outcome outcome = run(
      "env PMIX_NAMESPACE=gone PMIX_RANK=0 PMIX_SERVER_URI2='gone.0;tcp4://127.0.0.1:1' " HDT_EXCHANGE_PROGRAM
      " rounds");
  EXPECT_EQ(outcome.exit_code, 1) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("the PMIx server of job gone cannot be reached"));
}

}  // namespace
