// log_test.cc: levels, destination, the form of a line.
#include "base/log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "temporary_file.h"

namespace hdt {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class LogTest : public ::testing::Test {
 protected:
  void TearDown() override { ASSERT_TRUE(init_log(LogLevel::kWarn, "").is_ok()); }
  std::vector<std::string> lines() const {
    std::ifstream file(file_);
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }
  test::TemporaryFolder folder_;
  std::string file_ = folder_.path("log");
};

TEST_F(LogTest, ALineHasTimeLevelThreadAndMessage) {
  ASSERT_TRUE(init_log(LogLevel::kInfo, file_).is_ok());
  std::thread([] {
    set_thread_name("engine-0");
    HDT_LOG_INFO("link to {} is up", "n2");
  }).join();
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_THAT(lines()[0],
              MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6} info  "
                           "\\[engine-0\\] link to n2 is up"));
}

TEST_F(LogTest, DisabledLinesAreNeitherWrittenNorEvaluated) {
  ASSERT_TRUE(init_log(LogLevel::kWarn, file_).is_ok());
  int evaluated = 0;
  HDT_LOG_INFO("{}", ++evaluated);
  HDT_LOG_WARN("{}", ++evaluated);
  EXPECT_EQ(evaluated, 1);
  EXPECT_EQ(lines().size(), 1U);
}

TEST_F(LogTest, TagsNameOnlyWhatIsKnown) {
  EXPECT_EQ((LogTag{.group = "dp", .rank = 3, .op = 17}).to_string(), "group=dp rank=3 op=17");
  EXPECT_EQ((LogTag{.rank = 0}).to_string(), "rank=0");
  EXPECT_EQ(LogTag{}.to_string(), "");
  ASSERT_TRUE(init_log(LogLevel::kError, file_).is_ok());
  HDT_LOG_ERROR("late: {}", LogTag{.group = "pp", .node = "n1"});
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_THAT(lines()[0], HasSubstr("error"));
  EXPECT_THAT(lines()[0], HasSubstr("late: group=pp node=n1"));
}

TEST_F(LogTest, AnEntryStaysOneLine) {
  ASSERT_TRUE(init_log(LogLevel::kInfo, file_).is_ok());
  HDT_LOG_INFO("{}", "a\nforged line\x1b[2J");
  ASSERT_EQ(lines().size(), 1U);
  EXPECT_THAT(lines()[0], HasSubstr("a forged line [2J"));
}

TEST_F(LogTest, TheDestinationCanChangeWhileOthersLog) {
  ASSERT_TRUE(init_log(LogLevel::kInfo, file_).is_ok());
  constexpr int kLines = 200;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      for (int i = 0; i < kLines; ++i) HDT_LOG_INFO("line {}", i);
    });
  }
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(init_log(LogLevel::kInfo, file_).is_ok());
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(lines().size(), 4U * kLines);
}

// Standard error is a pipe while this lives.
class PipeAsStandardError {
 public:
  PipeAsStandardError() : before_(::dup(STDERR_FILENO)) {
    EXPECT_EQ(::pipe(ends_), 0);
    EXPECT_NE(::fcntl(ends_[0], F_SETFL, O_NONBLOCK), -1);
    EXPECT_EQ(::dup2(ends_[1], STDERR_FILENO), STDERR_FILENO);
    ::close(ends_[1]);
  }
  ~PipeAsStandardError() {
    ::dup2(before_, STDERR_FILENO);
    ::close(before_);
    close_reader();
  }
  void close_reader() {
    if (ends_[0] >= 0) ::close(std::exchange(ends_[0], -1));
  }
  // All that is in the pipe.
  std::string read() const {
    std::string text;
    char bytes[4096];
    for (ssize_t count = 0; (count = ::read(ends_[0], bytes, sizeof(bytes))) > 0;) {
      text.append(bytes, static_cast<size_t>(count));
    }
    return text;
  }

 private:
  int before_;
  int ends_[2] = {-1, -1};
};

// A thread that logs is not blocked by a standard error that nobody reads; the engine's would be otherwise.
TEST_F(LogTest, AFullPipeBlocksNobodyAndTheLinesLeftOutAreCounted) {
  ASSERT_TRUE(init_log(LogLevel::kInfo, "").is_ok());
  const PipeAsStandardError pipe;
  constexpr int kLines = 5000;  // more than a pipe takes
  for (int i = 0; i < kLines; ++i) HDT_LOG_INFO("line {} {}", i, std::string(100, 'x'));
  const std::string first = pipe.read();
  const auto written = std::count(first.begin(), first.end(), '\n');
  EXPECT_GT(written, 100);
  EXPECT_LT(written, kLines);
  HDT_LOG_INFO("read again");
  const std::string then = pipe.read();
  EXPECT_THAT(then, HasSubstr(std::to_string(kLines - written) + " line(s) of the log were left out"));
  EXPECT_THAT(then, HasSubstr("read again\n"));
  HDT_LOG_INFO("once more");
  EXPECT_THAT(pipe.read(), Not(HasSubstr("left out")));
}

TEST_F(LogTest, ALineThatIsLongerThanAPipeTakesAtOnceIsCut) {
  ASSERT_TRUE(init_log(LogLevel::kInfo, "").is_ok());
  const PipeAsStandardError pipe;
  HDT_LOG_INFO("{}", std::string(10'000, 'x'));
  const std::string line = pipe.read();
  EXPECT_EQ(line.size(), 4096U);
  EXPECT_TRUE(line.ends_with("xxx...\n"));
}

// It would raise SIGPIPE, and end the user's process.
TEST_F(LogTest, APipeWithoutReaderHarmsNobody) {
  ASSERT_TRUE(init_log(LogLevel::kInfo, "").is_ok());
  PipeAsStandardError pipe;
  pipe.close_reader();
  HDT_LOG_INFO("nobody reads this");
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsAnError) {
  folder_.write("plain", "");
  const Status below_file = init_log(LogLevel::kInfo, folder_.path("plain") + "/log");
  EXPECT_EQ(below_file.code(), Code::kConfig);
  EXPECT_THAT(below_file.message(), HasSubstr("log.file"));
  EXPECT_THAT(below_file.message(), HasSubstr("plain/log"));
}

TEST_F(LogTest, ClientLevelComesFromTheVariable) {
  ASSERT_TRUE(init_client_log(nullptr).is_ok());
  EXPECT_TRUE(log_enabled(LogLevel::kWarn));
  EXPECT_FALSE(log_enabled(LogLevel::kInfo));
  ASSERT_TRUE(init_client_log("debug").is_ok());
  EXPECT_TRUE(log_enabled(LogLevel::kDebug));
  const Status bad = init_client_log("loud");
  EXPECT_EQ(bad.code(), Code::kConfig);
  EXPECT_THAT(bad.message(), HasSubstr("HDT_LOG_LEVEL"));
  EXPECT_THAT(bad.message(), HasSubstr("loud"));
}

}  // namespace
}  // namespace hdt
