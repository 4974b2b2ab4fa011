// outputs_test.cc: files that cannot be written are known before the first step; what was written stays when
// the run is killed.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/training/train_command/small_run.h"

namespace hdt::training::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Below a file, where nobody can make one, root neither.
class TrainOutputs : public ::testing::Test {
 protected:
  TrainOutputs() { write_text(file("file"), "text"); }
  std::string file(const std::string& name) const { return scratch_.path(name); }
  std::string nowhere() const { return file("file") + "/x"; }

  ScratchDirectory scratch_;
};

TEST_F(TrainOutputs, AreTriedBeforeTheFirstStep) {
  const auto expect_no_step = [&](const std::string& flags, const std::string& text, int count = 1) {
    const ProgramResult run = train(flags, count);
    EXPECT_EQ(run.exit_status, 1) << run.output;
    EXPECT_THAT(run.output, AllOf(HasSubstr(text), Not(HasSubstr("step 1"))));
  };
  expect_no_step(kText + " --loss-curve " + nowhere(), "--loss-curve: cannot create " + nowhere());
  expect_no_step(kText + " --loss-curve " + file("no/folder.svg"), "--loss-curve: cannot create ");
  expect_no_step(kText + " --loss-curve /dev/null", "--loss-curve: cannot write /dev/null");
  expect_no_step(kText + " --loss-log " + nowhere(),
                 "--loss-log: cannot open " + nowhere() + ": Not a directory");
  expect_no_step(kText + " --loss-log " + file(""), "--loss-log: cannot open ");
  expect_no_step(kText + " --tensorboard-dir " + file("file"),
                 "--tensorboard-dir: cannot create the folder ");
  expect_no_step(" --profile " + nowhere(), "--profile: cannot create the folder " + nowhere());
  // Rank 0 writes: the others know as well.
  expect_no_step(kText + " --micro-batch-size 1 --loss-curve " + nowhere(), "because rank 0 is not ready", 2);
  EXPECT_EQ(std::distance(fs::directory_iterator(scratch_.path("")), fs::directory_iterator()), 1)
      << "left behind";
}

TEST_F(TrainOutputs, MustHaveNamesAndEachItsOwn) {
  for (const char* flag : {"--loss-curve", "--loss-log", "--tensorboard-dir", "--plan", "--data-path"})
    expect_refused(train(kText + " " + flag + " ''"), 2, std::string(flag) + ": '' given; expected a name");
  const std::string book = file("book");
  fs::copy_file(HDT_SOURCE_DIR "/LICENSE", book);
  expect_refused(train(" --text " + book + " --loss-log " + file("./book")), 2, "that is the file of --text");
  expect_refused(train(" --data-path " + file("set") + " --loss-curve " + file("set.bin")), 2,
                 "that is the file of --data-path");
  expect_refused(train(kText + " --loss-log " + file("a") + " --loss-curve " + file("a")), 2,
                 "that is the file of --loss-log");
  EXPECT_EQ(fs::file_size(book), fs::file_size(HDT_SOURCE_DIR "/LICENSE"));
}

TEST_F(TrainOutputs, AFullDiskIsNamedAtTheStepThatItEnds) {
  const ProgramResult run = train(kText + " --loss-log /dev/full");
  EXPECT_EQ(run.exit_status, 1) << run.output;
  EXPECT_THAT(run.output, HasSubstr("--loss-log: cannot write /dev/full: No space left on device"));
}

TEST_F(TrainOutputs, AreWrittenOutWhenTrainingDiverges) {
  const ProgramResult run = train(kText + " --lr 1e30 --lr-warmup-iters 0 --loss-log " + file("log") +
                                  " --loss-curve " + file("curve.svg"));
  EXPECT_EQ(run.exit_status, 1) << run.output;
  EXPECT_EQ(read_losses(file("log")).size(), 1U);
  EXPECT_THAT(text_of(file("curve.svg.gnuplot")), HasSubstr("$loss << END_OF_LOSS\n1 "));
  if (run.output.find("'gnuplot': No such file") != std::string::npos) GTEST_SKIP() << run.output;
  EXPECT_THAT(text_of(file("curve.svg")), HasSubstr("</svg>"));
}

TEST_F(TrainOutputs, LoseNothingWhenTheRunIsKilled) {
  const std::string log = file("log");
  quiet();
  // By exec the shell's pid is that of hdt-train.
  const std::string command = std::string("exec ") + HDT_TRAIN + kSmall + kText +
                              " --train-iters 100000000 --log-interval 1000000000 --tensorboard-dir " +
                              file("events") + " --loss-curve " + file("curve.svg") + " --loss-log " + log +
                              " > /dev/null 2>&1";
  const pid_t pid = ::fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }
  // The bound of a wait, not a measure.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(kTimeLimit);
  // A line a step, long before a buffer of a file would be full.
  while (text_of(log).find('\n') == std::string::npos && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_EQ(::kill(pid, SIGKILL), 0);
  int status = 0;
  ASSERT_EQ(::waitpid(pid, &status, 0), pid);
  ASSERT_TRUE(WIFSIGNALED(status)) << status;
  const std::string text = text_of(log);
  ASSERT_FALSE(text.empty());
  EXPECT_EQ(text.back(), '\n') << "a line was cut";
  // As many steps among the events.
  const size_t steps = read_losses(log).size();
  const std::string events = text_of(fs::directory_iterator(file("events"))->path());
  size_t losses = 0;
  for (size_t at = events.find("lm loss"); at != std::string::npos; at = events.find("lm loss", at + 1))
    ++losses;
  EXPECT_GE(losses, steps);
  for (const auto& entry : fs::directory_iterator(scratch_.path("")))
    EXPECT_THAT(entry.path().string(), Not(HasSubstr(".tmp."))) << "left behind";
}

}  // namespace
}  // namespace hdt::training::testing
