// runtime_folder_test.cc: XDG_RUNTIME_DIR and HDT_NODE_NAME in every form that users' environments give them.
#include "libclient/daemon_client/runtime_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hdt::client {
namespace {

using ::testing::HasSubstr;

class RuntimeFolder : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(::mkdtemp(folder_), nullptr); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  static Result<RuntimePlace> place(const std::string& runtime, const std::string& node = "") {
    return runtime_place(
        [&](const char* name) { return std::string(name) == "XDG_RUNTIME_DIR" ? runtime : ""; }, node);
  }
  static std::string base(const std::string& runtime, const std::string& node = "") {
    const auto found = place(runtime, node);
    return found.is_ok() ? found.value().base : found.status().message();
  }

  const std::string temporary_ = "/tmp/hdt-" + std::to_string(::geteuid());
  char folder_[32] = "/tmp/hdt-test-XXXXXX";
};

TEST_F(RuntimeFolder, OfTheVariableOrInTmp) {
  EXPECT_EQ(base(folder_), std::string(folder_) + "/hdt/node");
  EXPECT_EQ(base(folder_, "a"), std::string(folder_) + "/hdt/a");
  EXPECT_EQ(base(""), temporary_ + "/node");
}

TEST_F(RuntimeFolder, AVariableThatCannotBeUsedIsNot) {
  EXPECT_EQ(base(std::string(folder_) + "/absent"), temporary_ + "/node");
  EXPECT_EQ(base("relative"), temporary_ + "/node");
  std::ofstream(std::string(folder_) + "/file") << "text";
  EXPECT_EQ(base(std::string(folder_) + "/file"), temporary_ + "/node");
  const std::string deep = std::string(folder_) + "/" + std::string(90, 'd');
  std::filesystem::create_directory(deep);
  EXPECT_EQ(base(deep), temporary_ + "/node");
}

// As sudo and su leave it.
TEST_F(RuntimeFolder, AnotherUsersIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make a folder of another user";
  ASSERT_EQ(::chown(folder_, 12345, 12345), 0);
  EXPECT_EQ(base(folder_), temporary_ + "/node");
}

TEST_F(RuntimeFolder, ANodesNameThatMakesNoPathIsRefusedByName) {
  for (const std::string& name : {std::string("a/b"), std::string("../a"), std::string(100, 'n')}) {
    const auto refused = place(folder_, name);
    EXPECT_EQ(refused.status().code(), Code::kConfig) << name;
    EXPECT_THAT(refused.status().message(), HasSubstr("HDT_NODE_NAME"));
  }
}

TEST_F(RuntimeFolder, IsPrivateWhateverTheUmask) {
  const std::string made = std::string(folder_) + "/hdt";
  const mode_t before = ::umask(0777);
  const Status status = make_runtime_folder(made);
  ::umask(before);
  EXPECT_TRUE(status.is_ok()) << status.message();
  struct stat info {};
  ASSERT_EQ(::stat(made.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 07777, 0700U);
  EXPECT_TRUE(make_runtime_folder(made).is_ok());
}

TEST_F(RuntimeFolder, OneThatOthersCouldUseIsRefusedWithTheRemedy) {
  const std::string made = std::string(folder_) + "/hdt";
  ASSERT_EQ(::mkdir(made.c_str(), 0700), 0);
  ASSERT_EQ(::chmod(made.c_str(), 0777), 0);
  EXPECT_THAT(make_runtime_folder(made).message(), HasSubstr("XDG_RUNTIME_DIR"));
  std::filesystem::remove(made);
  ASSERT_EQ(::symlink("/tmp", made.c_str()), 0);
  EXPECT_FALSE(make_runtime_folder(made).is_ok());
}

TEST_F(RuntimeFolder, ListsTheSocketsOfOneNodeOrOfAll) {
  const auto listed = [&](const std::string& node) {
    const auto found = embedded_sockets(
        [&](const char* name) { return std::string(name) == "XDG_RUNTIME_DIR" ? folder_ : std::string(); },
        node);
    return found.is_ok() ? found.value() : std::vector<std::string>{found.status().message()};
  };
  EXPECT_THAT(listed(""), ::testing::IsEmpty());
  const std::string made = std::string(folder_) + "/hdt";
  ASSERT_TRUE(make_runtime_folder(made).is_ok());
  const std::vector<std::string> sockets = {made + "/a-0123456789ab.sock", made + "/a-b.sock",
                                            made + "/a.sock", made + "/node.sock"};
  for (const std::string& socket : sockets) std::ofstream(socket) << "";
  std::ofstream(made + "/node.lock") << "";
  EXPECT_EQ(listed(""), sockets);
  EXPECT_THAT(listed("a"), ::testing::ElementsAre(sockets[0], sockets[2]));
  EXPECT_THAT(listed("c"), ::testing::IsEmpty());
  ASSERT_EQ(::chmod(made.c_str(), 0755), 0);  // whose are the sockets?
  EXPECT_THAT(listed(""), ::testing::ElementsAre(HasSubstr("mode 0700")));
}

}  // namespace
}  // namespace hdt::client
