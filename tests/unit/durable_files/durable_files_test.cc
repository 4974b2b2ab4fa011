// durable_files_test.cc: what is on the disk after a power loss. A file that takes another one's place, or
// gets its name, is synced before, and its folder afterwards; otherwise it could be empty, or not there.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/secret_file.h"
#include "base/signing.h"
#include "daemon/links/measurements_file.h"
#include "daemon/protocol/trust.h"
#include "tests/unit/base_config/temporary_file.h"

namespace {

std::vector<std::string> calls;

std::string path_of(int descriptor) {
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor));
}

}  // namespace

// In the place of libc's.
extern "C" {

int fsync(int descriptor) {
  calls.push_back("sync " + path_of(descriptor));
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

int rename(const char* from, const char* to) noexcept {
  calls.push_back("name " + std::string(from) + " " + to);
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

int link(const char* from, const char* to) noexcept {
  calls.push_back("name " + std::string(from) + " " + to);
  return static_cast<int>(::syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

}  // extern "C"

namespace hdt {
namespace {

class DurableFiles : public ::testing::Test {
 protected:
  std::string file(const std::string& name) const { return folder_.path(name); }

  // Expects that the file has got its name with what was synced before, and that nothing is left beside it.
  void expect_durable(const std::string& name, mode_t mode) const {
    ASSERT_EQ(calls.size(), 3U) << name;
    const std::string prefix = "sync " + file(name) + ".";
    ASSERT_TRUE(calls[0].starts_with(prefix)) << calls[0];
    EXPECT_EQ(calls[1], "name " + calls[0].substr(5) + " " + file(name));
    EXPECT_EQ(calls[2], "sync " + folder_.path());
    struct stat info {};
    ASSERT_EQ(::stat(file(name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, mode);
    EXPECT_GT(info.st_size, 0);
    EXPECT_FALSE(std::filesystem::exists(calls[0].substr(5)));
  }

  test::TemporaryFolder folder_;
};

TEST_F(DurableFiles, AFileThatReplacesAnother) {
  const mode_t before = ::umask(022);
  std::ofstream(file("plan")) << "old";
  calls.clear();
  ASSERT_TRUE(write_file_atomically(file("plan"), "new").is_ok());
  expect_durable("plan", 0644);
  ::umask(before);
}

TEST_F(DurableFiles, AKey) {
  calls.clear();
  ASSERT_TRUE(make_secret_file(file("node.key"), "a secret").is_ok());
  expect_durable("node.key", 0600);
  EXPECT_EQ(make_secret_file(file("node.key"), "another").code(), Code::kInvalidUsage);
  EXPECT_EQ(read_secret_file(file("node.key"), 100).value(), "a secret");
}

TEST_F(DurableFiles, Measurements) {
  daemon::KnownMeasurements measured;
  measured.memory = {1'000'000, 2'000'000};
  calls.clear();
  ASSERT_TRUE(daemon::save_measurements(file("measurements.json"), measured).is_ok());
  expect_durable("measurements.json", 0644);
  EXPECT_EQ(daemon::load_measurements(file("measurements.json")).value(), measured);
}

TEST_F(DurableFiles, KnownNodes) {
  auto trust = daemon::Trust::open({"a key of the cluster", folder_.path(), ""});
  ASSERT_TRUE(trust.is_ok()) << trust.status().message();
  const PublicKey key = SigningKey::make().take().public_key();
  ASSERT_TRUE(trust.value()->check("n1", key, true).is_ok());
  calls.clear();
  ASSERT_TRUE(trust.value()->keep().is_ok());
  expect_durable("known_nodes", 0600);
  calls.clear();
  ASSERT_TRUE(trust.value()->keep().is_ok());
  EXPECT_TRUE(calls.empty()) << "nothing is new, so nothing is written";
}

}  // namespace
}  // namespace hdt
