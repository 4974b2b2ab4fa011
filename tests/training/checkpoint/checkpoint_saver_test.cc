// checkpoint_saver_test.cc: writing in the background, what a full disk leaves, and processes that are killed
// at any moment.
#include "training/checkpoint/checkpoint_saver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <array>
#include <chrono>
#include <csignal>
#include <fstream>
#include <thread>

#include "tests/training/checkpoint/examples.h"
#include "tests/training/data/temporary_folder.h"
#include "training/checkpoint/paths.h"

namespace hdt::training {
namespace {

using ::testing::HasSubstr;
using Phase = CheckpointSaver::Phase;

constexpr int64_t kLongMs = 120'000;  // a hang is a failure

std::unique_ptr<CheckpointSaver> start_saver(const std::string& save, int rank) {
  auto saver = CheckpointSaver::start(save, rank);
  EXPECT_TRUE(saver.is_ok()) << saver.status().to_string();
  return saver.is_ok() ? saver.take() : nullptr;
}

// Saves a step with a saver in the place of a rank that is alone.
Status save_in_background(CheckpointSaver& saver, CheckpointFolder& folder, int64_t step,
                          int keep_latest = 0) {
  const auto tensors = example_tensors(step);
  {
    // The snapshot is all that the saver needs: its source is gone when the writing is under way.
    const auto source = tensors;
    HDT_RETURN_IF_ERROR(saver.begin(step, part_of(source, 0, 1)));
  }
  const auto progress = saver.finish(Deadline::after_ms(kLongMs));
  if (progress.phase == Phase::kFailed) return progress.error;
  if (progress.phase != Phase::kFinished) return {Code::kTimeout, "not finished"};
  return folder
      .publish(example_state(step), std::span(&progress.summary, 1), expected_of(tensors), {keep_latest})
      .status();
}

TEST(CheckpointSaver, WritesASnapshotWhileItsSourceChanges) {
  const TemporaryFolder temporary;
  auto folder = CheckpointFolder::lock(temporary.path());
  ASSERT_TRUE(folder.is_ok());
  auto saver = start_saver(temporary.path(), 0);
  EXPECT_EQ(saver->poll().phase, Phase::kNone);
  EXPECT_EQ(saver->finish(Deadline::never()).phase, Phase::kNone);
  for (const int64_t step : {1, 2, 3}) {
    ASSERT_TRUE(save_in_background(*saver, *folder.value(), step).is_ok());
    EXPECT_EQ(saver->poll().phase, Phase::kNone);
    auto newest = open_newest(temporary.path());
    ASSERT_TRUE(newest.is_ok() && newest.value().checkpoint);
    EXPECT_EQ(newest.value().checkpoint->state().step, step);
    EXPECT_TRUE(holds_example(*newest.value().checkpoint));
  }
}

// The sanitizers touch memory of their own at every access.
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
constexpr size_t kLargeBytes = size_t{64} << 20;

// This thread's, until now.
int64_t page_faults() {
  rusage usage{};
  EXPECT_EQ(::getrusage(RUSAGE_THREAD, &usage), 0);
  return usage.ru_minflt;
}

size_t resident_pages() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  return pages;
}

TEST(CheckpointSaver, TheFirstSnapshotFindsItsMemoryPrepared) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  {
    void* const memory = ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(memory, MAP_FAILED);
    const bool can_provide = ::madvise(memory, page, MADV_POPULATE_WRITE) == 0;
    ::munmap(memory, page);
    if (!can_provide) GTEST_SKIP() << "this kernel provides no pages before they are written (Linux 5.14)";
  }
  const std::vector<float> large(kLargeBytes / sizeof(float));
  for (const bool prepared : {false, true}) {
    const TemporaryFolder temporary;
    auto saver = start_saver(temporary.path(), 0);
    if (prepared) {
      const size_t before = resident_pages();
      saver->prepare(1, kLargeBytes);
      // The first and the last page may be shared with other memory.
      const Deadline deadline = Deadline::after_ms(kLongMs);
      while (resident_pages() < before + kLargeBytes / page - 2) {
        ASSERT_FALSE(deadline.expired());
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    ShardTensors tensors;
    tensors.model.push_back(typed_view("large", {large.size()}, large));
    const int64_t before = page_faults();
    ASSERT_TRUE(saver->begin(1, tensors).is_ok());
    const int64_t faults = page_faults() - before;
    if (prepared) {
      EXPECT_LT(faults, 100);
    } else {
      EXPECT_GT(faults, 100);  // a page may be a huge one
    }
    EXPECT_EQ(saver->finish(Deadline::after_ms(kLongMs)).phase, Phase::kFinished);
  }
}
#endif

// However far the thread has come with the pages, the copy is that of the tensors.
TEST(CheckpointSaver, ASnapshotMayComeBeforeItsMemoryIsPrepared) {
  const TemporaryFolder temporary;
  auto folder = CheckpointFolder::lock(temporary.path());
  ASSERT_TRUE(folder.is_ok());
  for (const size_t bytes : {size_t{0}, size_t{1} << 12, size_t{64} << 20}) {
    auto saver = start_saver(temporary.path(), 0);
    saver->prepare(3, bytes);
    const auto step = static_cast<int64_t>(bytes) + 1;
    ASSERT_TRUE(save_in_background(*saver, *folder.value(), step).is_ok());
    auto newest = open_newest(temporary.path());
    ASSERT_TRUE(newest.is_ok() && newest.value().checkpoint);
    EXPECT_EQ(newest.value().checkpoint->state().step, step);
    EXPECT_TRUE(holds_example(*newest.value().checkpoint));
  }
  for (int round = 0; round < 20; ++round) start_saver(temporary.path(), 0)->prepare(3, size_t{64} << 20);
}

TEST(CheckpointSaver, OneWritingAtATime) {
  const TemporaryFolder temporary;
  auto saver = start_saver(temporary.path(), 0);
  const auto tensors = example_tensors(1);
  ASSERT_TRUE(saver->begin(1, part_of(tensors, 0, 1)).is_ok());
  // Under way, or finished and not taken.
  EXPECT_EQ(saver->begin(2, part_of(tensors, 0, 1)).code(), Code::kInvalidUsage);
  auto progress = saver->finish(Deadline::after_ms(kLongMs));
  ASSERT_EQ(progress.phase, Phase::kFinished);
  EXPECT_EQ(progress.summary.step, 1);
  EXPECT_TRUE(saver->begin(2, {}).is_ok());  // a rank without tensors
  progress = saver->finish(Deadline::after_ms(kLongMs));
  ASSERT_EQ(progress.phase, Phase::kFinished);
  EXPECT_TRUE(progress.summary.shards.empty());
}

TEST(CheckpointSaver, AFailureIsReportedOnceAndTheNextWritingWorks) {
  const TemporaryFolder temporary;
  const std::string save = temporary.file("save");
  write_all(save, "in the way");
  auto saver = start_saver(save, 3);
  const auto tensors = example_tensors(1);
  ASSERT_TRUE(saver->begin(1, part_of(tensors, 0, 1)).is_ok());
  const auto progress = saver->finish(Deadline::after_ms(kLongMs));
  EXPECT_EQ(progress.phase, Phase::kFailed);
  EXPECT_THAT(progress.error.message(), HasSubstr(save));
  EXPECT_EQ(saver->poll().phase, Phase::kNone);
  std::filesystem::remove(save);
  ASSERT_TRUE(saver->begin(2, part_of(tensors, 0, 1)).is_ok());
  EXPECT_EQ(saver->finish(Deadline::after_ms(kLongMs)).phase, Phase::kFinished);
}

TEST(CheckpointSaver, IsEndedWhileItWrites) {
  const TemporaryFolder temporary;
  const std::vector<float> large(size_t{8} << 20);
  for (int round = 0; round < 3; ++round) {
    auto saver = start_saver(temporary.path(), 0);
    ShardTensors tensors;
    tensors.model.push_back(typed_view("large", {large.size()}, large));
    ASSERT_TRUE(saver->begin(round, tensors).is_ok());
  }
  // Each was written whole, or is gone.
  for (const std::string& name : temporary.names()) {
    const std::string shard = temporary.file(name) + "/" + unpublished_shard_name("model", 0);
    EXPECT_TRUE(SafetensorsFile::open(shard).is_ok()) << name;
  }
}

// The limit of a file's size ends a write as a full disk does, at the byte where the space ends.
class FullDisk : public ::testing::Test {
 protected:
  void SetUp() override {
    before_ = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit_), 0);
  }
  void TearDown() override {
    set_limit(limit_.rlim_cur);
    std::signal(SIGXFSZ, before_);
  }
  void set_limit(rlim_t bytes) {
    const rlimit limit{bytes, limit_.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }

 private:
  rlimit limit_{};
  void (*before_)(int) = SIG_DFL;
};

TEST_F(FullDisk, LeavesTheCheckpointsBeforeAndNamesTheBytes) {
  const TemporaryFolder temporary;
  auto folder = CheckpointFolder::lock(temporary.path());
  ASSERT_TRUE(folder.is_ok());
  auto saver = start_saver(temporary.path(), 0);
  ASSERT_TRUE(save_in_background(*saver, *folder.value(), 1).is_ok());
  // At the shards, whose optimizer's is larger than the model's; then at the state, which is larger still.
  const uint64_t needed = std::filesystem::file_size(iteration_folder(temporary.path(), 1) +
                                                     "/optimizer-00001-of-00001.safetensors");
  for (const rlim_t bytes : {rlim_t{100}, static_cast<rlim_t>(needed - 1), static_cast<rlim_t>(needed)}) {
    set_limit(bytes);
    const Status failed = save_in_background(*saver, *folder.value(), 2);
    EXPECT_EQ(failed.code(), Code::kSystem) << bytes;
    EXPECT_THAT(failed.message(), HasSubstr(hidden_folder(temporary.path(), 2, kWritingSuffix)));
    if (bytes == needed - 1) {
      EXPECT_THAT(failed.message(), HasSubstr("it needs " + std::to_string(needed) + " bytes"));
      EXPECT_THAT(failed.message(), HasSubstr("File too large"));
    }
    EXPECT_FALSE(std::filesystem::exists(hidden_folder(temporary.path(), 2, kWritingSuffix))) << bytes;
    auto newest = open_newest(temporary.path());
    ASSERT_TRUE(newest.is_ok() && newest.value().checkpoint);
    EXPECT_EQ(newest.value().checkpoint->state().step, 1);
    EXPECT_TRUE(holds_example(*newest.value().checkpoint));
  }
  set_limit(RLIM_INFINITY);
  EXPECT_TRUE(save_in_background(*saver, *folder.value(), 2).is_ok());
}

// A child saves step after step, each second one twice, and reports each one. It ends when it is killed.
[[noreturn]] void save_until_killed(const std::string& save, int64_t step, int report) {
  auto folder = CheckpointFolder::lock(save);
  if (!folder.is_ok()) ::_exit(1);
  auto saver = CheckpointSaver::start(save, 0);
  if (!saver.is_ok()) ::_exit(2);
  for (;; ++step) {
    for (int again = 0; again < (step % 2 == 0 ? 2 : 1); ++again) {
      if (!save_in_background(*saver.value(), *folder.value(), step, 2).is_ok()) ::_exit(3);
      if (::write(report, &step, sizeof step) != sizeof step) ::_exit(4);
    }
  }
}

TEST(KilledRun, LeavesTheNewestCheckpointGood) {
  constexpr int kKills = 60;
  constexpr int64_t kMostUs = 30'000;
  std::mt19937_64 random(seed_of_test());
  const TemporaryFolder temporary;
  int64_t newest = 0;
  {
    auto folder = CheckpointFolder::lock(temporary.path());
    ASSERT_TRUE(folder.is_ok());
    ASSERT_TRUE(save_example(*folder.value(), newest, 1).is_ok());
  }
  int with_leftovers = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) save_until_killed(temporary.path(), newest + 1, ends[1]);
    ::close(ends[1]);
    // Killed at any time after its first checkpoint or, now and then, before.
    pollfd first{ends[0], POLLIN, 0};
    if (kill % 4 != 0) {
      ASSERT_EQ(::poll(&first, 1, kLongMs), 1);
    }
    ::usleep(static_cast<useconds_t>(random() % kMostUs));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child ended by itself with " << WEXITSTATUS(status);
    int64_t reported = newest;
    for (int64_t step = 0; ::read(ends[0], &step, sizeof step) == sizeof step;) reported = step;
    ::close(ends[0]);
    for (const std::string& name : temporary.names()) {
      if (!name.starts_with(".iter_")) continue;
      ++with_leftovers;
      break;
    }
    auto opened = open_newest(temporary.path());
    ASSERT_TRUE(opened.is_ok()) << opened.status().to_string();
    ASSERT_TRUE(opened.value().checkpoint);
    EXPECT_EQ(opened.value().warning, "");
    EXPECT_TRUE(holds_example(*opened.value().checkpoint));
    newest = opened.value().checkpoint->state().step;
    // The reported checkpoint is there; one more may have been published before its report.
    EXPECT_GE(newest, reported);
    EXPECT_LE(newest, reported + 1);
    if (HasFailure()) return;
  }
  std::cout << kKills << " kills, " << with_leftovers << " left a hidden folder; the last step is " << newest
            << "\n";
  EXPECT_GT(newest, 0);
  EXPECT_GT(with_leftovers, 0) << "no kill came while a checkpoint was written";
}

}  // namespace
}  // namespace hdt::training
