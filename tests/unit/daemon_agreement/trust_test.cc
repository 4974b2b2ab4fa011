// trust_test.cc: files of keys, and which node key a name may have.
#include "daemon/protocol/trust.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/secret_file.h"
#include "base/unique_fd.h"
#include "tests/unit/base_config/temporary_file.h"

namespace hdt::daemon {
namespace {

using ::testing::HasSubstr;

constexpr char kTrustKey[] = "a key of the cluster";

class TrustFiles : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path(name); }
  std::string write(const std::string& name, const std::string& text, mode_t mode = 0600) {
    std::ofstream(file(name)) << text;
    ::chmod(file(name).c_str(), mode);
    return file(name);
  }
  std::shared_ptr<Trust> open(const std::string& nodes_file = "") {
    auto trust = Trust::open({kTrustKey, folder_.path(), nodes_file});
    EXPECT_TRUE(trust.is_ok()) << trust.status().message();
    return trust.take();
  }

  test::TemporaryFolder folder_;
  const PublicKey one_ = SigningKey::make().take().public_key();
  const PublicKey other_ = SigningKey::make().take().public_key();
};

TEST_F(TrustFiles, AClusterKeyIsReadWithoutWhiteSpaceAndMustBeLongEnough) {
  const std::string path = write("key", std::string(kTrustKey) + " \n\n");
  EXPECT_EQ(load_cluster_key(path).value(), kTrustKey);
  write("key", "short\n");
  EXPECT_THAT(load_cluster_key(path).status().message(), HasSubstr("hdtctl key new"));
  write("key", std::string(5000, 'k'));
  EXPECT_EQ(load_cluster_key(path).status().code(), Code::kConfig);
  EXPECT_EQ(load_cluster_key(file("absent")).status().code(), Code::kConfig);
  EXPECT_EQ(load_cluster_key(folder_.path()).status().code(), Code::kConfig);
  EXPECT_EQ(load_cluster_key("").value(), "");
}

// Root may let a group read its own file; nothing else is for others.
TEST_F(TrustFiles, AKeyThatOthersCanReadOrWriteIsRefusedWithTheCommandThatMendsIt) {
  const bool root = ::geteuid() == 0;
  for (const mode_t mode : {0644, 0620, 0602, 0604, 0660, 0666, 0610}) {
    const auto key = load_cluster_key(write("key", kTrustKey, mode));
    EXPECT_THAT(key.status().message(), HasSubstr("chmod 600 " + file("key"))) << mode;
  }
  for (const mode_t mode : {0600, 0400, 0700})
    EXPECT_TRUE(load_cluster_key(write("key", kTrustKey, mode)).is_ok()) << mode;
  EXPECT_EQ(load_cluster_key(write("key", kTrustKey, 0640)).is_ok(), root);
  if (!root) return;
  ASSERT_EQ(::chown(write("key", kTrustKey).c_str(), 65533, 65533), 0);
  EXPECT_THAT(load_cluster_key(file("key")).status().message(), HasSubstr("chown 0 " + file("key")));
}

TEST_F(TrustFiles, ANewKeyOverwritesNothing) {
  const std::string key = new_cluster_key().take();
  EXPECT_NE(key, new_cluster_key().value());
  const mode_t before = ::umask(0);
  const Status made = make_secret_file(file("new"), key);
  ::umask(before);
  ASSERT_TRUE(made.is_ok());
  struct stat info {};
  ASSERT_EQ(::stat(file("new").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0600U);
  EXPECT_EQ(load_cluster_key(file("new")).value() + "\n", key);
  EXPECT_THAT(make_secret_file(file("new"), "else").message(), HasSubstr("not overwritten"));
  EXPECT_EQ(load_cluster_key(file("new")).value() + "\n", key);
  ASSERT_EQ(::symlink(file("nowhere").c_str(), file("dangling").c_str()), 0);
  EXPECT_FALSE(make_secret_file(file("dangling"), key).is_ok());
  EXPECT_FALSE(std::filesystem::exists(file("nowhere")));
}

TEST_F(TrustFiles, TheNodeKeyIsKeptAndTheNodeIdIsNot) {
  const auto first = open();
  EXPECT_TRUE(first->lasting());
  const auto again = open();
  EXPECT_EQ(first->key().public_key(), again->key().public_key());
  EXPECT_NE(first->node(), again->node());
  ::chmod(file("node.key").c_str(), 0644);
  EXPECT_THAT(Trust::open({kTrustKey, folder_.path(), ""}).status().message(), HasSubstr("chmod 600"));
  write("node.key", "no key\n");
  EXPECT_THAT(Trust::open({kTrustKey, folder_.path(), ""}).status().message(),
              HasSubstr("64 hexadecimal digits"));
  const auto alone = Trust::open({"", folder_.path(), ""}).take();  // nothing is proved without a cluster key
  EXPECT_FALSE(alone->lasting());
}

TEST_F(TrustFiles, ANameBelongsToTheKeyItWasFirstSeenWith) {
  auto trust = open();
  int news = 0;
  trust->on_new([&] { ++news; });
  EXPECT_TRUE(trust->check("n1", one_, true).is_ok());
  EXPECT_TRUE(trust->check("n1", one_, true).is_ok());
  EXPECT_EQ(news, 1);
  ASSERT_TRUE(trust->keep().is_ok());
  trust = open();
  EXPECT_TRUE(trust->check("n1", one_, true).is_ok());
  for (const bool lasting : {true, false}) {
    const Status refused = trust->check("n1", other_, lasting);
    EXPECT_EQ(refused.code(), Code::kConfig);
    EXPECT_THAT(refused.message(), HasSubstr("remove its line from " + file("known_nodes")));
  }
  // As the message says, and without a restart.
  write("known_nodes", "# none\n");
  EXPECT_TRUE(trust->check("n1", other_, true).is_ok());
  EXPECT_FALSE(trust->check("n1", one_, true).is_ok());
}

// Two daemons of one user, or the old one and the new one of an update.
TEST_F(TrustFiles, DaemonsOfOneFolderKeepEachOthersNodes) {
  const auto first = open();
  const auto second = open();
  ASSERT_TRUE(first->check("n1", one_, true).is_ok());
  ASSERT_TRUE(second->check("n2", other_, true).is_ok());
  ASSERT_TRUE(first->keep().is_ok());
  ASSERT_TRUE(second->keep().is_ok());
  EXPECT_EQ(read_nodes(file("known_nodes")).value(),
            (std::map<std::string, PublicKey>{{"n1", one_}, {"n2", other_}}));
  // The key that the other one had seen first counts here as well.
  EXPECT_FALSE(second->check("n1", other_, true).is_ok());
}

TEST_F(TrustFiles, DaemonsThatWriteAtOnceLoseNothing) {
  constexpr int kDaemons = 4;
  constexpr int kNodes = 10;
  std::vector<std::thread> daemons;
  for (int daemon = 0; daemon < kDaemons; ++daemon) {
    daemons.emplace_back([this, daemon, trust = open()] {
      for (int node = 0; node < kNodes; ++node) {
        EXPECT_TRUE(trust->check(fmt::format("n{}-{}", daemon, node), one_, true).is_ok());
        // Another attempt after the limit of the wait for the lock, as Control makes one at the next node.
        while (trust->keep().code() == Code::kSystem) {
        }
      }
    });
  }
  for (std::thread& daemon : daemons) daemon.join();
  EXPECT_EQ(read_nodes(file("known_nodes")).value().size(), size_t{kDaemons} * kNodes);
}

TEST_F(TrustFiles, AnAdministratorsEditStays) {
  const auto trust = open();
  ASSERT_TRUE(trust->check("n1", one_, true).is_ok());
  ASSERT_TRUE(trust->keep().is_ok());
  // Node n1 is removed, n2 comes, without a line's end behind it.
  const std::string edited = "# rack 4\n" + node_line("n2", other_) + "# until May";
  write("known_nodes", edited);
  ASSERT_TRUE(trust->check("n3", one_, true).is_ok());
  ASSERT_TRUE(trust->keep().is_ok());
  std::ifstream now(file("known_nodes"));
  EXPECT_EQ(std::string(std::istreambuf_iterator(now), {}), edited + "\n" + node_line("n3", one_));
  EXPECT_FALSE(trust->check("n2", one_, true).is_ok());
  EXPECT_TRUE(trust->check("n1", other_, true).is_ok());
}

TEST_F(TrustFiles, AFileThatCannotBeReadIsNotWrittenOver) {
  const auto trust = open();
  ASSERT_TRUE(trust->check("n1", one_, true).is_ok());
  write("known_nodes", "half a li");
  EXPECT_EQ(trust->keep().code(), Code::kConfig);
  std::ifstream now(file("known_nodes"));
  EXPECT_EQ(std::string(std::istreambuf_iterator(now), {}), "half a li");
  now.close();
  // It is mended.
  write("known_nodes", node_line("n2", other_));
  ASSERT_TRUE(trust->keep().is_ok());
  EXPECT_EQ(read_nodes(file("known_nodes")).value().size(), 2U);
}

TEST_F(TrustFiles, AProcessThatKeepsTheLockIsNotWaitedForForEver) {
  const auto trust = open();
  ASSERT_TRUE(trust->check("n1", one_, true).is_ok());
  UniqueFd held(::open(write("known_nodes.lock", "").c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_EQ(::flock(held.get(), LOCK_EX | LOCK_NB), 0);
  const Status kept = trust->keep();
  EXPECT_EQ(kept.code(), Code::kSystem);
  EXPECT_THAT(kept.message(), HasSubstr(file("known_nodes.lock")));
  EXPECT_FALSE(std::filesystem::exists(file("known_nodes")));
  held.reset();
  ASSERT_TRUE(trust->keep().is_ok());
  EXPECT_EQ(read_nodes(file("known_nodes")).value().size(), 1U);
}

// A daemon without a state folder has another key at each start.
TEST_F(TrustFiles, AKeyThatDoesNotLastIsNotRemembered) {
  const auto trust = open();
  EXPECT_TRUE(trust->check("n1", one_, false).is_ok());
  EXPECT_TRUE(trust->check("n1", other_, false).is_ok());
  EXPECT_TRUE(trust->check("n1", one_, true).is_ok());
  EXPECT_FALSE(trust->check("n1", other_, false).is_ok());
}

TEST_F(TrustFiles, WhoIsNotInTheListIsNoPeer) {
  const std::string list = write("nodes", "# all\n" + node_line("n1", one_), 0644);
  const auto trust = open(list);
  EXPECT_TRUE(trust->check("n1", one_, true).is_ok());
  EXPECT_TRUE(trust->check("n1", one_, false).is_ok());
  EXPECT_THAT(trust->check("n1", other_, true).message(), HasSubstr(list));
  EXPECT_THAT(trust->check("n2", other_, true).message(), HasSubstr("node n2 is not in security.nodes_file"));
  write("nodes", node_line("n1", one_) + node_line("n2", other_), 0644);
  EXPECT_TRUE(trust->check("n2", other_, true).is_ok());
  ASSERT_TRUE(trust->keep().is_ok());
  EXPECT_FALSE(std::filesystem::exists(file("known_nodes")));
}

TEST_F(TrustFiles, AListThatIsNoneIsRefused) {
  const std::string digits(64, 'a');
  for (const std::string& text :
       {std::string("n1\n"), "n1 " + digits.substr(1) + "\n", "n1 " + digits + " more\n",
        "n1 " + digits.substr(1) + "g\n", std::string("\n# only remarks\n")}) {
    EXPECT_EQ(Trust::open({kTrustKey, folder_.path(), write("nodes", text)}).status().code(), Code::kConfig)
        << text;
  }
  write("nodes", node_line("n1", one_), 0666);
  EXPECT_THAT(Trust::open({kTrustKey, folder_.path(), file("nodes")}).status().message(),
              HasSubstr("chmod go-w"));
  EXPECT_EQ(Trust::open({kTrustKey, folder_.path(), file("absent")}).status().code(), Code::kConfig);
}

}  // namespace
}  // namespace hdt::daemon
