// path_trials_test.cc: trials that fail where nothing would catch it: whoever asked gets an answer, and the
// daemon goes on.
#include "daemon/diagnosis/path_trials.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <future>
#include <stdexcept>
#include <string>

namespace hdt::daemon {
namespace {

using ::testing::HasSubstr;

// Against a hang only.
constexpr std::chrono::seconds kLimit{60};
constexpr int64_t kBudgetMs = 100;

std::vector<PathTrial> two_paths() {
  std::vector<PathTrial> paths(2);
  paths[0].to = "127.0.0.1:1";
  paths[1].to = "127.0.0.1:2";
  return paths;
}

// The errors that a trial ends with.
std::vector<std::string> errors_of(PathTrials& trials, PathTrials::MakeBackend make_backend) {
  std::promise<std::vector<std::string>> told;
  auto errors = told.get_future();
  trials.start(std::move(make_backend), two_paths(), kBudgetMs, [&](const std::vector<PathTrial>& tried) {
    std::vector<std::string> texts;
    for (const PathTrial& path : tried) texts.push_back(path.error);
    told.set_value(texts);
  });
  if (errors.wait_for(kLimit) != std::future_status::ready) return {"no answer"};
  return errors.get();
}

TEST(PathTrials, AnExceptionIsTheErrorOfAllPaths) {
  PathTrials trials;
  const auto errors = errors_of(trials, []() -> Result<std::unique_ptr<transport::Backend>> {
    throw std::runtime_error("the driver is broken");
  });
  ASSERT_EQ(errors.size(), 2U);
  for (const std::string& error : errors) EXPECT_EQ(error, "not tried: the driver is broken");
}

TEST(PathTrials, AnExceptionOfWhoeverAskedEndsTheTrialOnly) {
  PathTrials trials;
  std::promise<void> asked;
  trials.start([] { return Status(Code::kNoBackend, "no backend"); }, two_paths(), kBudgetMs,
               [&](const std::vector<PathTrial>&) {
                 asked.set_value();
                 throw std::runtime_error("no room for the answer");
               });
  ASSERT_EQ(asked.get_future().wait_for(kLimit), std::future_status::ready);
  const auto errors = errors_of(trials, [] { return Status(Code::kNoBackend, "no backend"); });
  EXPECT_EQ(errors, std::vector<std::string>(2, "no backend"));
}

// New threads of this process get a stack that no address space has room for, until this object ends.
class NoThreads {
 public:
  NoThreads() {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_getstacksize(&attributes, &before_);
    set(size_t{1} << 60);
    pthread_attr_destroy(&attributes);
  }
  ~NoThreads() { set(before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  static void set(size_t bytes) {
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    EXPECT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
    EXPECT_EQ(pthread_setattr_default_np(&attributes), 0);
    pthread_attr_destroy(&attributes);
  }
  size_t before_ = 0;
};

TEST(PathTrials, AThreadThatIsRefusedIsTheErrorOfAllPaths) {
  PathTrials trials;
  bool made = false;
  std::vector<std::string> errors;
  {
    const NoThreads none;
    errors = errors_of(trials, [&] {
      made = true;
      return Status(Code::kNoBackend, "no backend");
    });
  }
  EXPECT_FALSE(made);
  ASSERT_EQ(errors.size(), 2U);
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("not tried: "));
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("hdt-trials"));
}

}  // namespace
}  // namespace hdt::daemon
