// change_test.cc: classes change while their groups run: nothing fails, every result is right, and the links
// are those of the new configuration. HDT_SWAP_SECONDS makes the random changes go on for so long.
#include <gmock/gmock.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <random>

#include "daemon/daemon.h"
#include "tests/integration/backends/backend_nodes.h"
#ifdef HDT_MODULES
#include "tests/integration/backends/built_modules.h"
#endif

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Clock = std::chrono::steady_clock;

// A group with one rank on each node, whose ranks exchange by several operations in turn until they are told
// to stop.
class Job {
 public:
  Job(const BackendNodes& nodes, std::string group_class, int ranks)
      : thread_([this, &nodes, group_class = std::move(group_class), ranks] {
          nodes.run(group_class, [this, ranks](int rank, hdtComm_t comm, hdtResult_t made) {
            ASSERT_EQ(made, HDT_SUCCESS) << hdtGetLastError();
            void* shared = nullptr;
            HDT_EXPECT(hdtMemAlloc(&shared, kCount * sizeof(float)));
            while (round(comm, rank, ranks, static_cast<float*>(shared))) {
            }
            HDT_EXPECT(hdtMemFree(shared));
          });
          over_ = true;
        }) {}
  ~Job() { stop(); }

  void stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  // Waits until the ranks have done `more` rounds; false if they do not.
  bool rounds(long more) const {
    const long wanted = rounds_ + more;
    const auto until = Clock::now() + std::chrono::seconds(60);
    while (rounds_ < wanted) {
      if (over_ || Clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
  }
  long done() const { return rounds_; }
  long wrong() const { return wrong_; }

 private:
  static constexpr size_t kCount = 200'000;

  // False: it was the last one, or something failed.
  bool round(hdtComm_t comm, int rank, int ranks, float* shared) {
    const long call = rank == 0 ? rounds_.load() : 0;
    float header[2] = {rank == 0 && stop_ ? 1.0F : 0.0F, static_cast<float>(call % 1000)};
    if (!did(hdtBroadcast(header, header, 2, HDT_FLOAT32, 0, comm, nullptr))) return false;
    const auto seed = static_cast<size_t>(header[1]);
    const size_t count = seed % 3 == 0 ? 1'000 : kCount;
    std::vector<float> ordinary(count);
    float* data = seed % 2 == 0 ? shared : ordinary.data();
    for (size_t i = 0; i < count; ++i)
      data[i] = static_cast<float>((i + seed) % 251 + static_cast<size_t>(rank));
    if (!did(hdtAllReduce(data, data, count, HDT_FLOAT32, HDT_SUM, comm, nullptr))) return false;
    for (size_t i = 0; i < count; ++i) {
      const auto sum = static_cast<float>(static_cast<size_t>(ranks) * ((i + seed) % 251)) +
                       static_cast<float>(ranks * (ranks - 1)) / 2;
      wrong_ += data[i] != sum ? 1 : 0;
    }
    // To the next rank, and from the one before.
    std::vector<float> sent(count, static_cast<float>(rank) + header[1]);
    std::vector<float> received(count);
    hdtRequest_t sending = nullptr;
    hdtRequest_t receiving = nullptr;
    const int before = (rank + ranks - 1) % ranks;
    if (!did(hdtSend(sent.data(), count, HDT_FLOAT32, (rank + 1) % ranks, comm, &sending)) ||
        !did(hdtRecv(received.data(), count, HDT_FLOAT32, before, comm, &receiving)) ||
        !did(hdtWait(&sending, -1)) || !did(hdtWait(&receiving, -1))) {
      return false;
    }
    for (const float value : received) wrong_ += value != static_cast<float>(before) + header[1] ? 1 : 0;
    if (rank == 0) ++rounds_;
    return header[0] == 0.0F;
  }
  static bool did(hdtResult_t result) {
    EXPECT_EQ(result, HDT_SUCCESS) << hdtGetLastError();
    return result == HDT_SUCCESS;
  }

  std::atomic<bool> stop_{false};
  std::atomic<bool> over_{false};
  std::atomic<long> rounds_{0};
  std::atomic<long> wrong_{0};
  std::thread thread_;
};

// Work that the nodes are still busy with is over soon.
ProgramRun set(const BackendNodes& nodes, int by, const std::string& setting) {
  const auto until = Clock::now() + std::chrono::seconds(30);
  for (;;) {
    ProgramRun done = nodes.ctl(by, {"class", "set", "dp", setting});
    if (done.errors.find("try again") == std::string::npos || Clock::now() > until) return done;
  }
}

std::string chosen(const BackendNodes& nodes, int node, const std::string& other) {
  return nodes.ask(node, {"explain", "link", other})["classes"][0]["chosen"];
}

void swap_at_random(const std::vector<std::string>& backends, const std::string& modules, int swaps) {
  constexpr int kNodes = 3;
  const char* text = std::getenv("HDT_SWAP_SECONDS");
  const auto until = Clock::now() + std::chrono::seconds(text == nullptr ? 0 : std::atol(text));
  const uint64_t seed = std::random_device{}();
  std::printf("seed %lu\n", seed);
  std::mt19937_64 random(seed);
  const std::vector<std::string> flags = {"--class.dp.backends", "tcp"};
  const BackendNodes nodes(std::vector<std::vector<std::string>>(kNodes, flags), modules);
  Job job(nodes, "dp", kNodes);
  ASSERT_TRUE(job.rounds(2));
  int done = 0;
  for (; done < swaps || Clock::now() < until; ++done) {
    const std::string& to = backends[random() % backends.size()];
    const int by = static_cast<int>(random() % kNodes);
    const auto changed = set(nodes, by, "backends=" + to);
    ASSERT_EQ(changed.status, 0) << changed.errors << "; change " << done << " to " << to << ", seed "
                                 << seed;
    // Also while the one before is not over for all.
    ASSERT_TRUE(job.rounds(static_cast<long>(random() % 4)))
        << "change " << done << " to " << to << ", seed " << seed;
  }
  ASSERT_TRUE(job.rounds(2));
  for (const std::string& last : backends) {
    const auto changed = set(nodes, 0, "backends=" + last);
    ASSERT_EQ(changed.status, 0) << changed.errors << "; seed " << seed;
    ASSERT_TRUE(job.rounds(2));
    for (int node = 0; node < kNodes; ++node) {
      EXPECT_EQ(chosen(nodes, node, "n" + std::to_string((node + 1) % kNodes)), last) << "seed " << seed;
    }
  }
  job.stop();
  EXPECT_EQ(job.wrong(), 0) << "seed " << seed;
  std::printf("%d changes, %ld rounds of three operations\n", done, job.done());
}

TEST(Change, RunningGroupsGoFromBackendToBackend) {
  swap_at_random({"tcp", "local", "near", "third"}, HDT_TEST_MODULES "/good", 12);
}

#ifdef HDT_MODULES
TEST(Change, RunningGroupsGoThroughTheModulesOfThisBuild) {
  std::vector<std::string> backends = built_modules();
  if (backends.empty()) GTEST_SKIP() << "no module is built that can be used here (libfabric, UCX)";
  backends.emplace_back("tcp");
  swap_at_random(backends, HDT_MODULES, 6);
}
#endif

TEST(Change, OldLinksEndWhenNobodyUsesThem) {
  const std::vector<std::string> flags = {"--class.dp.backends", "tcp"};
  const BackendNodes nodes({flags, flags}, HDT_TEST_MODULES "/good");
  Job job(nodes, "dp", 2);
  ASSERT_TRUE(job.rounds(1));
  for (const char* to : {"near", "local", "near,tcp"}) {
    ASSERT_EQ(set(nodes, 1, std::string("backends=") + to).status, 0);
    ASSERT_TRUE(job.rounds(1));
  }
  const auto until = Clock::now() + std::chrono::seconds(30);
  size_t links = 0;
  while ((links = nodes.ask(0, {"status"})["peers"].size() + nodes.ask(1, {"status"})["peers"].size()) > 2 &&
         Clock::now() < until) {
    ASSERT_TRUE(job.rounds(1));
  }
  EXPECT_EQ(links, 2U);
  job.stop();
  EXPECT_EQ(job.wrong(), 0);
}

TEST(Change, IsRefusedIfAnyNodeCannot) {
  const std::vector<std::string> flags = {"--class.dp.backends", "tcp"};
  const BackendNodes nodes({flags, flags});
  Job job(nodes, "dp", 2);
  ASSERT_TRUE(job.rounds(1));
  const auto refused = [&](const std::string& setting, int status, const std::string& why) {
    const ProgramRun done = nodes.ctl(0, {"class", "set", "dp", setting});
    EXPECT_EQ(done.status, status) << setting;
    EXPECT_THAT(done.errors, HasSubstr(why));
    EXPECT_THAT(done.errors, ::testing::StartsWith("hdtctl: "));
    ASSERT_TRUE(job.rounds(2)) << setting;
    for (int node = 0; node < 2; ++node)
      EXPECT_EQ(chosen(nodes, node, node == 0 ? "n1" : "n0"), "tcp") << setting;
  };
  refused("backends=rmda", 1, "available are tcp, ");
  refused("colour=3", 2, "unknown key");
  refused("weight=0", 2, "expected an integer 1..1000");
  refused("nics=127.0.1.1", 1, "node n1: ");  // an address of n0
  refused("backends=deaf", 1, "no backend connects node n");
  EXPECT_EQ(nodes.ctl(0, {"class", "set", "dp"}).status, 2);
  EXPECT_EQ(nodes.ctl(0, {"class", "set", "dp", "weight"}).status, 2);
  // And then one that is possible.
  EXPECT_THAT(nodes.ctl(0, {"class", "set", "dp", "backends=deaf,near", "weight=3"}).output,
              AllOf(HasSubstr("deaf, near"), HasSubstr("weight 3")));
  ASSERT_TRUE(job.rounds(2));
  EXPECT_EQ(chosen(nodes, 1, "n0"), "near");
  job.stop();
  EXPECT_EQ(job.wrong(), 0);
}

TEST(Change, SighupTakesTheClassesOfTheFile) {
  TemporaryFolder folder;
  const auto write = [&](const std::string& backends) {
    std::ofstream(folder.file("new")) << "[class.dp]\nbackends = [\"" << backends << "\"]\n";
    std::filesystem::rename(folder.file("new"), folder.file("hdt.toml"));
  };
  write("tcp");
  const std::vector<std::string> flags = {"--config", folder.file("hdt.toml")};
  const BackendNodes nodes({flags, flags});
  Job job(nodes, "dp", 2);
  ASSERT_TRUE(job.rounds(1));
  const auto tell = [&](const std::string& backends) {
    write(backends);
    for (int node = 0; node < 2; ++node) nodes.signal(node, SIGHUP);
  };
  for (const char* backend : {"near", "tcp"}) {
    tell(backend);
    const auto until = Clock::now() + std::chrono::seconds(40);
    while ((chosen(nodes, 0, "n1") != backend || chosen(nodes, 1, "n0") != backend) && Clock::now() < until) {
      ASSERT_TRUE(job.rounds(1));
    }
    EXPECT_EQ(chosen(nodes, 0, "n1"), backend);
    EXPECT_EQ(chosen(nodes, 1, "n0"), backend);
  }
  job.stop();
  EXPECT_EQ(job.wrong(), 0);
}

// When the second is read the daemon is busy with the first.
TEST(Change, OfTwoReadingsOfTheFileTheSecondCounts) {
  TemporaryFolder folder;
  const std::string socket = folder.file("n0.sock");
  const auto with_weight = [&](const char* weight) {
    ConfigSources sources;
    sources.flags = {{"node.socket", socket},
                     {"node.name", "n0"},
                     {"nics.addresses", "127.0.1.1"},
                     {"nics.port", "0"},
                     {"class.dp.weight", weight}};
    sources.system_file.clear();
    return load_config(sources).take();
  };
  daemon::Daemon daemon(with_weight("2"));
  ASSERT_TRUE(daemon.start().is_ok());
  daemon.reconfigure(with_weight("3"));
  daemon.reconfigure(with_weight("4"));
  std::string shown;
  const auto until = Clock::now() + std::chrono::seconds(20);
  while (shown.find("weight 4") == std::string::npos && Clock::now() < until)
    shown = run_program({HDT_HDTCTL, "--socket", socket, "class", "set", "dp", "priority=bulk"}).output;
  EXPECT_THAT(shown, HasSubstr("weight 4"));
  daemon.stop(0, "the test is over");
}

}  // namespace
}  // namespace hdt::testing
