// detect_job_test.cc: each launcher's variables, their order, and every way in which they can be wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "libclient/launch/environment.h"

namespace hdt::client {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Kind = Rendezvous::Kind;
using Variables = std::map<std::string, std::string>;

Result<Job> detect(const Variables& variables) {
  return detect_job([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

Job detected(const Variables& variables) {
  Result<Job> job = detect(variables);
  EXPECT_TRUE(job.is_ok()) << job.status().to_string();
  return job.is_ok() ? job.take() : Job{};
}

std::string error_of(const Variables& variables) {
  const Result<Job> job = detect(variables);
  EXPECT_FALSE(job.is_ok());
  EXPECT_EQ(job.status().code(), Code::kConfig);
  return job.status().message();
}

Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

const Variables kMpirun = {{"OMPI_COMM_WORLD_RANK", "3"},
                           {"OMPI_COMM_WORLD_SIZE", "4"},
                           {"PMIX_RANK", "3"},
                           {"PMIX_NAMESPACE", "1234"}};
const Variables kSrun = {{"SLURM_PROCID", "2"},         {"SLURM_NTASKS", "8"},
                         {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_JOB_ID", "4711"},
                         {"SLURM_STEP_ID", "1"},        {"SLURM_STEP_NODELIST", "node[01-04,07]"}};
const Variables kTorchrun = {
    {"RANK", "5"}, {"WORLD_SIZE", "16"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};

std::string secret_of(const Variables& variables) {
  return job_secret([&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  });
}

TEST(JobSecret, IsTheOneThatTheUserGives) {
  EXPECT_EQ(secret_of({}), "");
  EXPECT_EQ(secret_of({{"HDT_JOB_SECRET", "x"}}), "x");
}

TEST(JobSecret, IsMpirunsWhereItsRunSpansHosts) {
  const Variables spanning = {{"OMPI_MCA_orte_precondition_transports", "9e50-c6db"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
  const std::string drawn = secret_of(spanning);
  EXPECT_THAT(drawn, HasSubstr("9e50-c6db"));
  EXPECT_NE(secret_of(with(spanning, {{"OMPI_MCA_orte_precondition_transports", "9e50-c6dc"}})), drawn);
  EXPECT_EQ(secret_of(with(spanning, {{"HDT_JOB_SECRET", "x"}})), "x");
  // One mpirun on each host: each has drawn another one.
  EXPECT_EQ(secret_of(with(spanning, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}})), "");
  // Other launchers' processes may be of the job as well.
  for (const char* name : {"HDT_RANK", "HDT_SIZE", "RANK", "WORLD_SIZE"})
    EXPECT_EQ(secret_of(with(spanning, {{name, "1"}})), "") << name;
}

TEST(DetectJob, NoLauncherIsAGroupOfOne) {
  const Job job = detected({});
  EXPECT_EQ(job.rank, 0);
  EXPECT_EQ(job.size, 1);
  EXPECT_EQ(job.rendezvous.kind, Kind::kNone);
}

TEST(DetectJob, OwnVariables) {
  const Job job = detected({{"HDT_RANK", "1"}, {"HDT_SIZE", "2"}, {"HDT_RENDEZVOUS", "n1:7000"}});
  EXPECT_EQ(job.rank, 1);
  EXPECT_EQ(job.size, 2);
  EXPECT_EQ(job.source, "HDT_RANK");
  EXPECT_EQ(job.rendezvous.kind, Kind::kAddress);
  EXPECT_EQ(job.rendezvous.host, "n1");
  EXPECT_EQ(job.rendezvous.port, 7000);
}

TEST(DetectJob, Mpirun) {
  const Job job = detected(kMpirun);
  EXPECT_EQ(job.rank, 3);
  EXPECT_EQ(job.size, 4);
  EXPECT_EQ(job.source, "OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(job.rendezvous.kind, Kind::kPmix);
}

TEST(DetectJob, PmixAloneLeavesTheSizeToPmix) {
  const Job job = detected({{"PMIX_RANK", "2"}, {"PMIX_NAMESPACE", "x"}, {"SLURM_PROCID", "9"}});
  EXPECT_EQ(job.rank, 2);
  EXPECT_EQ(job.size, std::nullopt);
  EXPECT_EQ(job.source, "PMIX_RANK");
  EXPECT_EQ(job.rendezvous.kind, Kind::kPmix);
}

TEST(DetectJob, Srun) {
  const Job job = detected(kSrun);
  EXPECT_EQ(job.rank, 2);
  EXPECT_EQ(job.size, 4);
  EXPECT_EQ(job.source, "SLURM_PROCID");
  EXPECT_EQ(job.rendezvous.kind, Kind::kFirstNode);
  EXPECT_EQ(job.rendezvous.host, "node01");
  EXPECT_EQ(job.rendezvous.port, 20'000 + (4711 + 997) % 12'000);
}

TEST(DetectJob, ABatchScriptIsNotATask) {
  Variables script = kSrun;
  script.erase("SLURM_STEP_ID");
  EXPECT_EQ(detected(script).size, 1);
}

TEST(DetectJob, Torchrun) {
  const Job job = detected(kTorchrun);
  EXPECT_EQ(job.rank, 5);
  EXPECT_EQ(job.size, 16);
  EXPECT_EQ(job.rendezvous.kind, Kind::kAddress);
  EXPECT_EQ(job.rendezvous.host, "10.0.0.1");
  EXPECT_EQ(job.rendezvous.port, 29501);
}

TEST(DetectJob, TorchrunUnderAnotherLauncherIsWhatCounts) {
  for (const Variables& outer : {kSrun, kMpirun}) {
    const Job job = detected(with(with(outer, kTorchrun), {{"TORCHELASTIC_RUN_ID", "none"}}));
    EXPECT_EQ(job.rank, 5);
    EXPECT_EQ(job.size, 16);
    EXPECT_EQ(job.rendezvous.kind, Kind::kAddress);
    EXPECT_EQ(job.rendezvous.port, 29501);
  }
}

TEST(DetectJob, TheFirstSourceSetCounts) {
  const Variables own = {
      {"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29500"}};
  const Variables all = with(with(own, kSrun), kMpirun);
  EXPECT_EQ(detected(all).source, "OMPI_COMM_WORLD_RANK");
  EXPECT_EQ(detected(all).rendezvous.kind, Kind::kPmix);
  EXPECT_EQ(detected(with(all, {{"HDT_RANK", "0"}, {"HDT_SIZE", "2"}})).source, "HDT_RANK");
  EXPECT_EQ(detected(with(all, {{"HDT_RENDEZVOUS", "[::1]:80"}})).rendezvous.host, "::1");
  const Variables under_srun = with(with(own, {{"RANK", "2"}}), kSrun);
  EXPECT_EQ(detected(under_srun).source, "SLURM_PROCID");
  EXPECT_EQ(detected(under_srun).rendezvous.source, "MASTER_ADDR");
  EXPECT_EQ(detected(with(kMpirun, {{"HDT_RANK", ""}, {"HDT_SIZE", ""}})).source, "OMPI_COMM_WORLD_RANK");
}

// "srun --pty bash" or "mpirun -np 1 script": the script's processes inherit the variables of the one task.
TEST(DetectJob, AScriptInsideASingleTaskMeansItsOwnVariables) {
  const Variables pty =
      with(kSrun, {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  const Variables mpirun_one = with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}});
  const Variables pmix_one = {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "1234"}};
  for (const Variables& outer : {pty, mpirun_one, pmix_one, with(pty, pmix_one)}) {
    const Job job = detected(with(outer, kTorchrun));
    EXPECT_EQ(job.source, "RANK");
    EXPECT_EQ(job.rank, 5);
    EXPECT_EQ(job.size, 16);
    EXPECT_EQ(job.rendezvous.source, "MASTER_ADDR");
  }
  // A task of its own, whose variables say the same.
  EXPECT_EQ(detected(with(pty, {{"RANK", "0"}, {"WORLD_SIZE", "1"}})).size, 1);
}

TEST(DetectJob, VariablesThatContradictEachOtherAreNamed) {
  EXPECT_EQ(error_of(with(kMpirun, kTorchrun)),
            "environment RANK: RANK=5 and WORLD_SIZE=16 contradict OMPI_COMM_WORLD_RANK=3 and "
            "OMPI_COMM_WORLD_SIZE=4: "
            "unset those that are not meant, or set HDT_RANK and HDT_SIZE");
  EXPECT_THAT(error_of(with(kSrun, kTorchrun)), HasSubstr("SLURM_PROCID=2 and SLURM_STEP_NUM_TASKS=4"));
  EXPECT_THAT(error_of(with(kMpirun, {{"WORLD_SIZE", "8"}})), HasSubstr("RANK=(not set) and WORLD_SIZE=8"));
  EXPECT_THAT(error_of(with(kMpirun, {{"OMPI_COMM_WORLD_RANK", "0"},
                                      {"PMIX_RANK", "0"},
                                      {"OMPI_COMM_WORLD_SIZE", "1"},
                                      {"WORLD_SIZE", "4"}})),
              HasSubstr("OMPI_COMM_WORLD_SIZE=1"));
  EXPECT_THAT(error_of({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "1"}, {"RANK", "2"}, {"WORLD_SIZE", "4"}}),
              HasSubstr("PMIX_RANK=1"));
  EXPECT_EQ(detected(with(with(kMpirun, kTorchrun), {{"HDT_RANK", "1"}, {"HDT_SIZE", "2"}})).rank, 1);
}

TEST(DetectJob, MasterAddrIsAHostWithoutAPort) {
  const Variables ranks = {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}};
  EXPECT_EQ(detected(with(ranks, {{"MASTER_ADDR", "[fd00::1]"}})).rendezvous.host, "fd00::1");
  EXPECT_EQ(detected(with(ranks, {{"MASTER_ADDR", "fd00::1"}})).rendezvous.host, "fd00::1");
  for (const char* wrong : {"n1:29500", "[fd00::1]:29500", "tcp://n1", "n1 n2"}) {
    EXPECT_THAT(error_of(with(ranks, {{"MASTER_ADDR", wrong}})),
                HasSubstr(std::string("found \"") + wrong + "\""));
  }
}

TEST(DetectJob, OneRankNeedsNoMeeting) {
  const Variables alone = {{"RANK", "0"}, {"WORLD_SIZE", "1"}};
  EXPECT_EQ(detected(alone).rendezvous.kind, Kind::kNone);
  EXPECT_EQ(detected(with(alone, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}})).rendezvous.kind, Kind::kNone);
}

TEST(DetectJob, ErrorsNameTheVariable) {
  EXPECT_EQ(error_of({{"HDT_RANK", "one"}, {"HDT_SIZE", "2"}}),
            "environment HDT_RANK: expected an integer 0..1048575, found \"one\"");
  EXPECT_EQ(error_of({{"HDT_RANK", "2"}, {"HDT_SIZE", "2"}}),
            "environment HDT_RANK: expected a rank below HDT_SIZE=2, found 2");
  EXPECT_EQ(error_of({{"HDT_SIZE", "2"}}),
            "environment HDT_RANK: expected an integer 0..1048575, but it is not set");
  EXPECT_EQ(error_of({{"RANK", "1"}}),
            "environment WORLD_SIZE: expected an integer 1..1048576, but it is not set");
  EXPECT_EQ(error_of({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}),
            "environment RANK: expected an integer 0..1048575, found \"-1\"");
  EXPECT_EQ(error_of({{"RANK", "0"}, {"WORLD_SIZE", "99999999999999999999"}}),
            "environment WORLD_SIZE: expected an integer 1..1048576, found \"99999999999999999999\"");
  EXPECT_THAT(error_of({{"RANK", " 0"}, {"WORLD_SIZE", "1"}}), StartsWith("environment RANK:"));
  EXPECT_THAT(error_of({{"OMPI_COMM_WORLD_SIZE", "0"}, {"OMPI_COMM_WORLD_RANK", "0"}}),
              StartsWith("environment OMPI_COMM_WORLD_SIZE:"));
  EXPECT_EQ(error_of({{"PMIX_RANK", "0"}}), "environment PMIX_RANK: set, but PMIX_NAMESPACE is not");
}

TEST(DetectJob, RanksWithoutAMeetingPlaceAreAnError) {
  const std::string message = error_of({{"RANK", "1"}, {"WORLD_SIZE", "2"}});
  EXPECT_THAT(message, StartsWith("environment HDT_RENDEZVOUS: expected host:port"));
  EXPECT_THAT(message, HasSubstr("RANK makes this one of 2 ranks"));
}

TEST(DetectJob, MeetingPlacesThatAreWrong) {
  const Variables ranks = {{"RANK", "1"}, {"WORLD_SIZE", "2"}};
  for (const char* address :
       {"n1", "n1:", ":80", "n1:0", "n1:65536", "n1:80x", "::1:80", "[::1]", "[::1:80", "[n1]:80"}) {
    EXPECT_THAT(error_of(with(ranks, {{"HDT_RENDEZVOUS", address}})),
                StartsWith("environment HDT_RENDEZVOUS: expected"))
        << address;
  }
  // Wrong is wrong, even where a group of one would not need it.
  EXPECT_THAT(error_of({{"HDT_RENDEZVOUS", "n1"}}), HasSubstr("found \"n1\""));
  EXPECT_THAT(error_of(with(ranks, {{"MASTER_ADDR", "a"}})), StartsWith("environment MASTER_PORT:"));
  EXPECT_THAT(error_of(with(ranks, {{"MASTER_PORT", "1"}})), StartsWith("environment MASTER_ADDR:"));
  EXPECT_THAT(error_of(with(ranks, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "65535"}})),
              StartsWith("environment MASTER_PORT:"));
  EXPECT_THAT(error_of(with(kSrun, {{"SLURM_STEP_NODELIST", "node[01"}})),
              StartsWith("environment SLURM_STEP_NODELIST:"));
  EXPECT_THAT(error_of(with(kSrun, {{"SLURM_JOB_ID", ""}})), StartsWith("environment SLURM_JOB_ID:"));
  EXPECT_THAT(error_of(with(kSrun, {{"SLURM_STEP_ID", "x"}})), StartsWith("environment SLURM_STEP_ID:"));
}

}  // namespace
}  // namespace hdt::client
