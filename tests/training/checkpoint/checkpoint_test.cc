// checkpoint_test.cc: checkpoints are published whole or not at all, read by name whatever the number of
// ranks that wrote them, pruned, locked, and refused by name where something is missing or damaged.
#include "training/checkpoint/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <nlohmann/json.hpp>

#include "tests/training/checkpoint/examples.h"
#include "tests/training/data/temporary_folder.h"
#include "training/checkpoint/paths.h"

namespace hdt::training {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class CheckpointTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto locked = CheckpointFolder::lock(temporary_.path());
    ASSERT_TRUE(locked.is_ok()) << locked.status().to_string();
    folder_ = locked.take();
  }
  void save(int64_t step, int ranks = 2, int keep_latest = 0) {
    const auto published = save_example(*folder_, step, ranks, keep_latest);
    ASSERT_TRUE(published.is_ok()) << published.status().to_string();
    EXPECT_EQ(published.value().folder, iteration_folder(save_folder(), step));
    EXPECT_EQ(published.value().warning, "");
  }
  // The step of the newest checkpoint, which must hold the example; -1: there is none.
  int64_t newest(const char* warning = "") {
    auto opened = open_newest(save_folder());
    EXPECT_TRUE(opened.is_ok()) << opened.status().to_string();
    if (!opened.is_ok() || !opened.value().checkpoint) return -1;
    EXPECT_THAT(opened.value().warning, HasSubstr(warning));
    EXPECT_EQ(opened.value().warning.empty(), *warning == '\0') << opened.value().warning;
    EXPECT_TRUE(holds_example(*opened.value().checkpoint));
    return opened.value().checkpoint->state().step;
  }
  // Why the folder of a step cannot be opened, or its tensors cannot be read.
  std::string refusal(int64_t step) {
    auto opened = Checkpoint::open(iteration_folder(save_folder(), step));
    if (!opened.is_ok()) return opened.status().message();
    const auto held = holds_example(opened.value());
    return held ? "" : held.message();
  }
  const std::string& save_folder() const { return temporary_.path(); }
  std::string in(int64_t step, const std::string& file) const {
    return iteration_folder(save_folder(), step) + "/" + file;
  }
  std::vector<std::string> visible() const {
    std::vector<std::string> names = temporary_.names();
    std::erase_if(names, [](const std::string& name) { return name.starts_with('.'); });
    return names;
  }
  // Hidden names but the lock's.
  std::vector<std::string> hidden() const {
    std::vector<std::string> names = temporary_.names();
    std::erase_if(names, [](const std::string& name) { return !name.starts_with('.') || name == kLockFile; });
    return names;
  }
  // Publishes step 5 with summaries that `change` has changed, which must be refused.
  template <typename Change>
  std::string publish_refused(Change change) {
    save(4);
    auto summaries = write_all_ranks(save_folder(), 5, 2);
    auto expected = expected_of(example_tensors(5));
    TrainingState state = example_state(5);
    change(summaries, expected, state);
    const auto published = folder_->publish(state, summaries, expected);
    EXPECT_FALSE(published.is_ok());
    EXPECT_EQ(newest(), 4);
    EXPECT_TRUE(hidden().empty());
    return published.status().message();
  }

  TemporaryFolder temporary_;
  std::unique_ptr<CheckpointFolder> folder_;
};

using Summaries = std::vector<ShardSummary>;
using Expected = std::vector<ExpectedTensor>;

TEST_F(CheckpointTest, HasTheFilesOfMegatronAndHuggingFace) {
  save(100, 3);
  EXPECT_THAT(visible(), ElementsAre("iter_0000100", kTrackerFile));
  EXPECT_TRUE(hidden().empty());
  EXPECT_EQ(read_all(save_folder() + "/" + kTrackerFile), "100\n");
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(iteration_folder(save_folder(), 100)))
    files.push_back(entry.path().filename());
  EXPECT_THAT(files, ::testing::UnorderedElementsAre(
                         kIndexFile, kStateFile, "model-00001-of-00003.safetensors",
                         "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
                         "optimizer-00001-of-00003.safetensors", "optimizer-00002-of-00003.safetensors",
                         "optimizer-00003-of-00003.safetensors"));
  const auto index = nlohmann::json::parse(read_all(in(100, kIndexFile)));
  EXPECT_EQ(index["weight_map"].size(), 5U);
  EXPECT_EQ(index["weight_map"]["model.layers.1.weight"], "model-00002-of-00003.safetensors");
  EXPECT_EQ(index["metadata"]["total_size"], (2 + 3 + 4 + 5 + 6) * 7 * 4);
}

TEST_F(CheckpointTest, IsReadByNameWhateverWroteIt) {
  for (const int ranks : {1, 2, 3, 5, 8}) {  // of 8 some have no tensors
    save(ranks, ranks);
    EXPECT_EQ(newest(), ranks);
  }
}

TEST_F(CheckpointTest, PartsOfTensorsAreRead) {
  save(1);
  auto opened = Checkpoint::open(iteration_folder(save_folder(), 1));
  ASSERT_TRUE(opened.is_ok());
  Checkpoint& checkpoint = opened.value();
  const auto tensors = example_tensors(1);
  EXPECT_EQ(checkpoint.elements(tensors[4].name), tensors[4].values.size());
  EXPECT_EQ(checkpoint.elements("none"), std::nullopt);
  std::vector<float> part(5);
  ASSERT_TRUE(checkpoint.read(tensors[4].name, 3, part).is_ok());
  EXPECT_EQ(part, std::vector<float>(tensors[4].values.begin() + 3, tensors[4].values.begin() + 8));
  EXPECT_THAT(checkpoint.read(tensors[4].name, 17, part).message(), HasSubstr("do not fit"));
  EXPECT_THAT(checkpoint.read("none", 0, part).message(), HasSubstr("has no tensor 'none'"));
}

TEST_F(CheckpointTest, OtherTypesThanF32AreRefusedByName) {
  const std::vector<uint16_t> values(4);
  ShardTensors tensors;
  tensors.model.push_back({"half", Dtype::kF16, {4}, std::as_bytes(std::span(values))});
  const auto summary = write_shards(save_folder(), 1, 0, tensors);
  ASSERT_TRUE(summary.is_ok());
  const ExpectedTensor expected{"half", 4, ShardKind::kModel};
  ASSERT_TRUE(
      folder_->publish(example_state(1), std::span(&summary.value(), 1), std::span(&expected, 1)).is_ok());
  auto opened = Checkpoint::open(iteration_folder(save_folder(), 1));
  ASSERT_TRUE(opened.is_ok());
  std::vector<float> out(4);
  EXPECT_THAT(opened.value().read("half", 0, out).message(), HasSubstr("'half': its dtype is F16"));
}

TEST_F(CheckpointTest, NoFolderAndAnEmptyOneHaveNoCheckpoint) {
  EXPECT_EQ(newest(), -1);
  const auto none = open_newest(save_folder() + "/none");
  ASSERT_TRUE(none.is_ok()) << none.status().to_string();
  EXPECT_FALSE(none.value().checkpoint);
}

TEST_F(CheckpointTest, TheTrackerDecidesAndOtherwiseTheHighestStepWithAWarning) {
  save(20);
  save(10);  // a run that went back
  EXPECT_EQ(newest(), 10);
  write_all(save_folder() + "/" + kTrackerFile, "30\n");
  EXPECT_EQ(newest("names iteration 30"), 20);
  write_all(save_folder() + "/" + kTrackerFile, "release\n");
  EXPECT_EQ(newest("holds no number"), 20);
  write_all(save_folder() + "/" + kTrackerFile, std::string(65, '1'));
  EXPECT_EQ(newest("at most 64 bytes"), 20);
  fs::remove(save_folder() + "/" + kTrackerFile);
  EXPECT_EQ(newest(), 20);
  fs::remove(in(20, kStateFile));
  EXPECT_EQ(newest(kStateFile), 10);
  fs::remove(in(10, kStateFile));
  const auto none = open_newest(save_folder());
  EXPECT_THAT(none.status().message(), HasSubstr("no checkpoint in"));
  EXPECT_THAT(none.status().message(), HasSubstr("iter_0000010"));
}

TEST_F(CheckpointTest, AMissingOrCutShardIsRefusedByName) {
  save(1);
  const std::string shard = in(1, "optimizer-00002-of-00002.safetensors");
  const std::string bytes = read_all(shard);
  write_all(shard, bytes.substr(1));
  EXPECT_THAT(refusal(1), HasSubstr(shard));
  EXPECT_THAT(refusal(1), HasSubstr("bytes"));
  fs::remove(shard);
  EXPECT_THAT(refusal(1), HasSubstr("the shard " + shard + " of the checkpoint is missing"));
}

TEST_F(CheckpointTest, EveryFlippedByteOfAShardIsRefused) {
  save(1, 1);
  std::mt19937_64 random(seed_of_test());
  for (const char* file : {"model-00001-of-00001.safetensors", "optimizer-00001-of-00001.safetensors"}) {
    const std::string good = read_all(in(1, file));
    for (int round = 0; round < 150; ++round) {
      std::string bad = good;
      const size_t at = random() % bad.size();
      bad[at] = static_cast<char>(bad[at] ^ (1 << (random() % 8)));
      write_all(in(1, file), bad);
      const std::string reason = refusal(1);
      // The spaces before the data may become other blanks of JSON, and "format":"pt" another text.
      if (reason.empty()) {
        const size_t metadata = good.find("\"format\":\"pt\"");
        EXPECT_TRUE(good[at] == ' ' || (at >= metadata && at < metadata + 13)) << "byte " << at;
        continue;
      }
      EXPECT_THAT(reason, HasSubstr(file));
    }
    write_all(in(1, file), good);
  }
  EXPECT_EQ(refusal(1), "");
  // A byte in the midst of the data: the tensor is named.
  const std::string file = "model-00001-of-00001.safetensors";
  std::string bad = read_all(in(1, file));
  bad.back() = static_cast<char>(bad.back() ^ 1);
  write_all(in(1, file), bad);
  EXPECT_THAT(refusal(1), HasSubstr(file + ": tensor 'model.layers.4.weight': its bytes are damaged"));
}

TEST_F(CheckpointTest, ShardsThatWereSwappedAreRefused) {
  save(1);
  save(2);
  fs::copy_file(in(2, "model-00001-of-00002.safetensors"), in(1, "model-00001-of-00002.safetensors"),
                fs::copy_options::overwrite_existing);
  EXPECT_THAT(refusal(1), HasSubstr("its bytes are damaged"));
}

TEST_F(CheckpointTest, AStateThatDoesNotFitTheShardIsRefused) {
  save(1);
  auto state = nlohmann::json::parse(read_all(in(1, kStateFile)));
  auto& tensor = state["tensors"]["model.layers.0.weight"];
  tensor["shape"] = {7, 2};
  write_all(in(1, kStateFile), state.dump());
  EXPECT_THAT(refusal(1), HasSubstr("its dtype or shape is not that"));
  tensor["shard"] = "model-00002-of-00002.safetensors";
  write_all(in(1, kStateFile), state.dump());
  EXPECT_THAT(refusal(1), HasSubstr("it is not in the file"));
  write_all(in(1, kStateFile), state.dump().substr(1));
  EXPECT_THAT(refusal(1), HasSubstr(in(1, kStateFile) + ": it is no JSON"));
}

TEST_F(CheckpointTest, ATensorThatNoRankWroteIsNamed) {
  EXPECT_THAT(publish_refused([](Summaries&, Expected& expected, TrainingState&) {
                expected.push_back({"more", 1, ShardKind::kModel});
              }),
              HasSubstr("written by no rank, the first is 'more'"));
  EXPECT_THAT(publish_refused([](Summaries& summaries, Expected&, TrainingState&) { summaries.pop_back(); }),
              HasSubstr("written by no rank"));
}

TEST_F(CheckpointTest, SummariesThatDoNotFitAreRefused) {
  EXPECT_THAT(publish_refused([](Summaries&, Expected& e, TrainingState&) { e.pop_back(); }),
              HasSubstr("where it is not expected"));
  EXPECT_THAT(
      publish_refused([](Summaries&, Expected& e, TrainingState&) { e[0].kind = ShardKind::kOptimizer; }),
      HasSubstr("where it is not expected"));
  EXPECT_THAT(publish_refused([](Summaries&, Expected& e, TrainingState&) { e.push_back(e[0]); }),
              HasSubstr("is expected twice"));
  EXPECT_THAT(publish_refused([](Summaries&, Expected& e, TrainingState&) { ++e[3].elements; }),
              HasSubstr("has 21 elements, expected 22"));
  EXPECT_THAT(publish_refused([](Summaries& s, Expected&, TrainingState&) { s[1].rank = 0; }),
              HasSubstr("two ranks say that they are rank 0"));
  EXPECT_THAT(publish_refused([](Summaries& s, Expected&, TrainingState&) { s[1].step = 4; }),
              HasSubstr("rank 1 has written step 4"));
  EXPECT_THAT(publish_refused([](Summaries& s, Expected&, TrainingState&) { s[1].rank = 2; }),
              HasSubstr("rank 2 has written a file 'model.rank-00001.safetensors'"));
  EXPECT_THAT(publish_refused([](Summaries& s, Expected&, TrainingState&) {
                s[1].shards[0].tensors.insert(*s[0].shards[0].tensors.begin());
              }),
              HasSubstr("was written by rank 0 and by rank 1"));
  EXPECT_THAT(publish_refused([](Summaries&, Expected&, TrainingState& t) { t.consumed_samples = -1; }),
              HasSubstr("negative"));
  EXPECT_THAT(publish_refused([](Summaries&, Expected&, TrainingState& t) { t.fingerprint["a"] = "\x1b"; }),
              HasSubstr("no plain text"));
}

TEST_F(CheckpointTest, AFolderThatIsNotSharedIsNamedAsTheCause) {
  const auto lost = [&](Summaries&, Expected&, TrainingState&) {
    fs::remove(hidden_folder(save_folder(), 5, kWritingSuffix) + "/model.rank-00001.safetensors");
  };
  EXPECT_THAT(publish_refused(lost), HasSubstr("is --save on a file system that all nodes share?"));
  EXPECT_THAT(publish_refused([](Summaries& s, Expected&, TrainingState&) { ++s[1].shards[1].bytes; }),
              HasSubstr("is --save on a file system that all nodes share?"));
}

TEST_F(CheckpointTest, TheSameStepAgainReplacesIt) {
  save(5, 3);
  save(6, 1);
  save(5, 1);  // a run that went back
  EXPECT_EQ(newest(), 5);
  EXPECT_FALSE(fs::exists(in(5, "model-00001-of-00003.safetensors")));
  EXPECT_TRUE(hidden().empty());
}

TEST_F(CheckpointTest, PruningKeepsTheNewestAndWhatIsNotItsOwn) {
  fs::create_directory(iteration_folder(save_folder(), 1));  // of another program
  write_all(in(1, "mp_rank_00"), "x");
  for (const int64_t step : {2, 4, 6, 8}) save(step);
  save(7, 2, 2);
  EXPECT_THAT(visible(),
              ElementsAre("iter_0000001", "iter_0000006", "iter_0000007", "iter_0000008", kTrackerFile));
  EXPECT_EQ(newest(), 7);
  save(9, 2, 1);
  EXPECT_THAT(visible(), ElementsAre("iter_0000001", "iter_0000009", kTrackerFile));
  EXPECT_TRUE(hidden().empty());
}

TEST_F(CheckpointTest, ADamagedOneDoesNotCountAmongThoseThatAreKept) {
  save(1);
  save(2);
  fs::remove(in(2, kStateFile));
  save(3, 2, 2);
  EXPECT_THAT(visible(), ElementsAre("iter_0000001", "iter_0000002", "iter_0000003", kTrackerFile));
}

TEST_F(CheckpointTest, LeftoversAreRemovedAtTheNextStartAndNotBefore) {
  save(3);
  write_all_ranks(save_folder(), 4, 2);
  fs::create_directory(hidden_folder(save_folder(), 1, kRemovingSuffix));
  write_all(save_folder() + "/.iter_x.writing", "not ours");
  write_all(save_folder() + "/" + kTrackerFile + ".tmp.77.1", "4\n");
  EXPECT_FALSE(CheckpointFolder::lock(save_folder()).is_ok());
  EXPECT_THAT(hidden(), ElementsAre(".iter_0000001.removing", ".iter_0000004.writing", ".iter_x.writing"));
  folder_.reset();
  SetUp();
  EXPECT_THAT(hidden(), ElementsAre(".iter_x.writing"));
  EXPECT_THAT(visible(), ElementsAre("iter_0000003", kTrackerFile));
  EXPECT_EQ(newest(), 3);
}

// As a kill leaves it on a file system that cannot exchange names.
TEST_F(CheckpointTest, ACheckpointThatWasMovedAsideIsFoundAndGetsItsNameBack) {
  save(3);
  const std::string aside = hidden_folder(save_folder(), 3, kReplacedSuffix);
  fs::rename(iteration_folder(save_folder(), 3), aside);
  EXPECT_EQ(newest("names iteration 3"), 3);
  folder_.reset();
  SetUp();
  EXPECT_EQ(newest(), 3);
  EXPECT_TRUE(hidden().empty());
  fs::copy(iteration_folder(save_folder(), 3), aside);
  folder_.reset();
  SetUp();
  EXPECT_EQ(newest(), 3);
  EXPECT_TRUE(hidden().empty());
}

TEST_F(CheckpointTest, ASecondRunIsLockedOutAndLearnsByWhom) {
  const auto second = CheckpointFolder::lock(save_folder());
  ASSERT_FALSE(second.is_ok());
  EXPECT_EQ(second.status().code(), Code::kInvalidUsage);
  EXPECT_THAT(second.status().message(), HasSubstr("process " + std::to_string(::getpid()) + " on host "));
  // The lock goes with its holder, however that ends.
  folder_.reset();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto locked = CheckpointFolder::lock(save_folder());
    ::kill(::getpid(), locked.is_ok() ? SIGKILL : SIGTERM);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  SetUp();
}

TEST_F(CheckpointTest, AFolderThatCannotBeMadeIsAnError) {
  write_all(save_folder() + "/file", "x");
  EXPECT_THAT(CheckpointFolder::lock(save_folder() + "/file/save").status().message(),
              HasSubstr("file/save"));
  EXPECT_THAT(write_shards(save_folder() + "/file", 1, 0, {}).status().message(), HasSubstr("cannot make"));
}

TEST_F(CheckpointTest, AbandonedWritingLeavesNothing) {
  save(1);
  write_all_ranks(save_folder(), 2, 2);
  EXPECT_FALSE(hidden().empty());
  EXPECT_TRUE(abandon_writing(save_folder(), 2).is_ok());
  EXPECT_TRUE(abandon_writing(save_folder(), 2).is_ok());  // there is none
  EXPECT_TRUE(hidden().empty());
  EXPECT_EQ(newest(), 1);
}

}  // namespace
}  // namespace hdt::training
