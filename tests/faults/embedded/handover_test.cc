// handover_test.cc: jobs that share an embedded daemon do not depend on each other: whoever hosts it ends, is
// killed, stopped or replaced by another program, and the others go on.
#include "tests/faults/embedded/job.h"

#include <unistd.h>

#include <fstream>
#include <thread>

namespace hdt::testing {
namespace {

using ::testing::HasSubstr;

struct End {
  const char* name;
  void (*of)(RankProcess& host);
};

void by_exit(RankProcess& host) {
  EXPECT_EQ(host.call("destroy").result, HDT_SUCCESS);
  host.start("exit");
  EXPECT_EQ(host.process().wait(Deadline::after_ms(kEndMs)), 0);
}
void by_exit_in_a_group(RankProcess& host) {
  host.start("exit");
  EXPECT_EQ(host.process().wait(Deadline::after_ms(kEndMs)), 0);
}
void by_abort(RankProcess& host) {
  EXPECT_EQ(host.call("abort").result, HDT_SUCCESS);
  by_exit(host);
}
void by_kill(RankProcess& host) {
  host.process().signal(SIGKILL);
  EXPECT_TRUE(host.process().wait(Deadline::after_ms(kEndMs)).has_value());
}
void by_exec(RankProcess& host) { host.start("exec"); }
// The child has copies of all descriptors, and lives on.
void by_exit_with_a_child(RankProcess& host) {
  EXPECT_EQ(host.call("fork").result, HDT_SUCCESS);
  by_exit(host);
}

class HostEnds : public EmbeddedNodes, public ::testing::WithParamInterface<End> {};

TEST_P(HostEnds, AJobOfOneNodeGoesOn) {
  Rank host = host_on(0);
  Ranks job = this->job({0, 0});
  expect_all(job, "allreduce 100000 4 0");
  GetParam().of(*host);
  expect_all(job, "allreduce 100000 4 0");
  // The next daemon makes groups, and has adopted this one.
  World::join(job, kAnswerMs, "");
  expect_all(job, "allreduce 100000 4 0");
  Ranks later = this->job({0, 0});
  expect_all(later, "barrier");
  end_group(later);
  end_group(job);
  expect_nothing_left();
}

// Operations between nodes go on with the same bits.
TEST_P(HostEnds, AJobOfTwoNodesGoesOn) {
  Rank first = host_on(0);
  Rank second = host_on(1);
  Ranks job = this->job({0, 0, 1});
  const std::string stop = folder_.file("stop");
  const auto work = [&](const std::string& rounds) {
    for (auto& rank : job) rank->start("work 7 " + stop + " 0 " + rounds);
  };
  const auto done = [&] {
    std::string same;
    for (auto& rank : job) {
      const Answer answer = rank->finish();
      EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
      if (same.empty()) same = answer.text;
      EXPECT_EQ(answer.text, same);
    }
    return same;
  };
  work("0");
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  for (auto* host : {&first, &second}) {
    GetParam().of(**host);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(job[0]->finish(0).result, HDT_IN_PROGRESS);
  }
  std::ofstream(stop) << "enough";
  const std::string disturbed = done();
  work(std::to_string(std::strtoull(disturbed.c_str(), nullptr, 10)));
  EXPECT_EQ(done(), disturbed);
  end_group(job);
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(All, HostEnds,
                         ::testing::Values(End{"Exit", by_exit}, End{"ExitInAGroup", by_exit_in_a_group},
                                           End{"Abort", by_abort}, End{"Kill", by_kill}, End{"Exec", by_exec},
                                           End{"ExitWithAChild", by_exit_with_a_child}),
                         [](const auto& tested) { return tested.param.name; });

// Each host ends before the next: two nodes of which every daemon is replaced, at the same time, too.
TEST_F(EmbeddedNodes, HostsThatEndOneAfterTheOther) {
  Ranks first = job({0, 1});
  Ranks second = job({0, 1});
  Ranks third = job({0, 0, 1});
  for (Ranks* ending : {&first, &second}) {
    end_group(*ending);
    expect_all(third, "allreduce 100000 4 0");
  }
  end_group(third);
  expect_nothing_left();
}

TEST_F(EmbeddedNodes, AStoppedHostGoesOnWhenItIsContinued) {
  Rank host = host_on(0);
  Ranks one_node = job({0, 0});
  Ranks two_nodes = job({0, 1});
  host->process().signal(SIGSTOP);
  expect_all(one_node, "allreduce 100000 4 0");  // needs no daemon
  for (auto& rank : two_nodes) rank->start("allreduce 100000 4 0");
  EXPECT_EQ(two_nodes[0]->finish(200).result, HDT_IN_PROGRESS);
  host->process().signal(SIGCONT);
  for (auto& rank : two_nodes) EXPECT_EQ(rank->finish().result, HDT_SUCCESS);
  by_exit(*host);
  end_group(one_node);
  end_group(two_nodes);
  expect_nothing_left();
}

// The host ends while another job is making its group: the coordinator was its daemon, and the next one is it
// at the same address.
class WhileAGroupIsMade : public EmbeddedNodes, public ::testing::WithParamInterface<End> {};

TEST_P(WhileAGroupIsMade, ItIsMade) {
  Rank host = host_on(0);
  Ranks job;
  for (const int node : {0, 0, 1}) job.push_back(process_on(node));
  const Answer id = job[0]->call("id");
  ASSERT_EQ(id.result, HDT_SUCCESS) << id.text;
  const auto join = [&](size_t rank) {
    job[rank]->start("join 3 " + std::to_string(rank) + " 20000 " + id.text);
  };
  join(0);
  join(2);
  EXPECT_EQ(job[0]->finish(200).result, HDT_IN_PROGRESS);
  GetParam().of(*host);
  EXPECT_EQ(job[2]->finish(200).result, HDT_IN_PROGRESS);
  join(1);
  for (auto& rank : job) {
    const Answer answer = rank->finish();
    EXPECT_EQ(answer.result, HDT_SUCCESS) << answer.text;
  }
  expect_all(job, "allreduce 100000 4 0");
  end_group(job);
  expect_nothing_left();
}

INSTANTIATE_TEST_SUITE_P(All, WhileAGroupIsMade,
                         ::testing::Values(End{"Exit", by_exit}, End{"Kill", by_kill}),
                         [](const auto& tested) { return tested.param.name; });

// A host that is a rank of the group is missed by all within 5 s, the promise, and named.
TEST_F(EmbeddedNodes, AHostThatIsKilledIsMissedOnAllNodes) {
  Ranks job = this->job({0, 0, 1});
  for (const size_t rank : {1, 2}) job[rank]->start("barrier");
  EXPECT_EQ(job[1]->finish(50).result, HDT_IN_PROGRESS);
  kill(*job[0]);
  for (const size_t rank : {1, 2}) {
    const Answer answer = job[rank]->finish(5'000);
    EXPECT_EQ(answer.result, HDT_ERR_RANK_LOST) << answer.text;
    EXPECT_THAT(answer.text, HasSubstr("rank 0"));
  }
}

// Nobody can take over where the host was the only process: nobody waits for that.
TEST_F(EmbeddedNodes, AHostThatIsKilledAloneIsMissedToo) {
  Ranks job = this->job({0, 1});
  job[0]->start("barrier");
  EXPECT_EQ(job[0]->finish(50).result, HDT_IN_PROGRESS);
  kill(*job[1]);
  const Answer answer = job[0]->finish(5'000);
  EXPECT_THAT(answer.result, ::testing::AnyOf(HDT_ERR_LINK, HDT_ERR_RANK_LOST)) << answer.text;
  EXPECT_THAT(answer.text, HasSubstr("rank 1"));
}

// A rank sends, leaves and ends at once; what it sent arrives, whoever hosted.
TEST_F(EmbeddedNodes, WhatALeavingRankHasSentArrives) {
  for (const bool hosted_by_other : {false, true}) {
    Rank host = hosted_by_other ? host_on(0) : nullptr;
    Ranks job = this->job({0, 1});
    ASSERT_EQ(job[0]->call("send 50000 4 1").result, HDT_SUCCESS);
    if (hosted_by_other) kill(*host);
    EXPECT_EQ(job[0]->call("destroy").result, HDT_SUCCESS);
    job[0]->start("exit");
    const Answer received = job[1]->call("recv 50000 4 0");
    EXPECT_EQ(received.result, HDT_SUCCESS) << received.text;
    EXPECT_EQ(job[0]->process().wait(Deadline::after_ms(kEndMs)), 0);
    EXPECT_EQ(job[1]->call("destroy").result, HDT_SUCCESS);
    expect_exit(*job[1]);
  }
}

// A process that once used a daemon and is in no group hosts none, and hinders nobody.
TEST_F(EmbeddedNodes, AnIdleProcessTakesNothingOver) {
  Rank host = host_on(0);
  Ranks idle = job({0, 0});
  expect_all(idle, "destroy");
  by_exit(*host);
  EXPECT_THAT(files(), ::testing::IsEmpty());
  // It needs one again: now it hosts.
  World::join(idle, kAnswerMs, "");
  expect_all(idle, "barrier");
  end_group(idle);
  expect_nothing_left();
}

}  // namespace
}  // namespace hdt::testing
