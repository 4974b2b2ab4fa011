// backend_test_nics_test.cc: hdt-backend-test on NICs that do not reach each other, are down, have no address
// or do not exist: it says so in a line, and ends. Interfaces are made in a network namespace of the test's
// own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

#include "tests/integration/communicator/node_process.h"

namespace hdt::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kOneTest = "--gtest_filter=*AddressesOfBothEndsMatch*";

ProgramRun backend_test(std::vector<std::string> words, const std::string& modules) {
  words.insert(words.begin(), HDT_BACKEND_TEST);
  words.emplace_back(kOneTest);
  return run_program(words, {{"HDT_TRANSPORT_PATH", modules}, {"UCX_LOG_LEVEL", "fatal"}});
}

void expect_line(const ProgramRun& done, const std::string& text) {
  EXPECT_EQ(done.status, 1) << done.output << done.errors;
  EXPECT_THAT(done.errors, AllOf(HasSubstr("hdt-backend-test: "), HasSubstr(text)));
  EXPECT_EQ(std::count(done.errors.begin(), done.errors.end(), '\n'), 1) << done.errors;
  EXPECT_THAT(done.output, Not(HasSubstr("Failure")));
}

TEST(BackendTestNics, UnknownNamesAndForeignAddressesAreALine) {
  const std::string none = HDT_TEST_MODULES "/good";
  expect_line(backend_test({"tcp", "--nic", "lo,nope"}, none),
              "--nic: 'nope' given; backend tcp has no such NIC");
  expect_line(backend_test({"tcp", "--nic", ""}, none), "--nic: '' given");
  expect_line(backend_test({"tcp", "--nic", "lo", "--address", "192.0.2.77"}, none),
              "--address: lo (192.0.2.77) does not reach itself: cannot open lo (192.0.2.77): cannot use "
              "local address");
  expect_line(backend_test({"tcp", "--nic", "lo", "--address", "127.0.0.1,::1"}, none),
              "one is IPv4, the other IPv6");
  expect_line(backend_test({"tcp", "--nic", "lo", "--address", "127.0.0.1,nonsense"}, none),
              "'nonsense' is not a numeric IP address");
}

TEST(BackendTestNics, ModulesThatCannotBeUsedAreALine) {
  const std::string broken = HDT_TEST_MODULES "/broken";
  expect_line(backend_test({"version"}, broken), "was built for version");
  expect_line(backend_test({"name"}, broken), "holds backend somethingelse");
  expect_line(backend_test({"make"}, broken), "has no function that makes the backend");
  expect_line(backend_test({"null"}, broken), "its module made none");
  expect_line(backend_test({"none"}, broken), "no backend is called \"none\"");
  // It finds a NIC, which reaches nobody.
  expect_line(backend_test({"deaf"}, HDT_TEST_MODULES "/deaf"),
              "deaf0 (127.0.0.1) does not reach itself: cannot connect to 127.0.0.1:1: Connection refused; "
              "name NICs that "
              "reach each other");
}

TEST(BackendTestNics, ASilentAddressThatIsNoneIsNamed) {
  const ProgramRun done = run_program(
      {HDT_BACKEND_TEST, "tcp", "--nic", "lo", "--silent-address", "x", "--gtest_filter=*Unanswered*"});
  EXPECT_EQ(done.status, 1);
  EXPECT_THAT(done.output,
              HasSubstr("silent address 'x': invalid argument: address 'x': expected a numeric address"));
}

// lo; v0, with an address; x0, with one of IPv6; w0, with an address, down; v1, without an address.
class BackendTestInterfaces : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (::getuid() != 0) GTEST_SKIP() << "needs root, to make a network namespace";
  }
  static ProgramRun run(const std::string& words) {
    const std::string script =
        "set -e; mount -t sysfs none /sys; ip link set lo up; ip link add v0 type veth peer name v1;"
        "ip link add w0 type veth peer name w1; ip link add x0 type veth peer name x1;"
        "for i in v0 v1 x0 x1; do ip link set $i up; done;"
        "ip addr add 10.9.0.1/24 dev v0; ip addr add 10.8.0.1/24 dev w0;"
        "ip addr add fd00:5::1/64 dev x0 nodad;"
        "for i in v0 x0; do until grep -q up /sys/class/net/$i/operstate; do sleep 0.01; done; done;"
        "until ip -6 route get fd00:5::1 >/dev/null 2>&1; do sleep 0.01; done; exec ";
    return run_program({"unshare", "-n", "-m", "sh", "-c",
                        script + HDT_BACKEND_TEST + " " + GetParam() + " " + words + " '" + kOneTest + "'"},
                       {{"HDT_TRANSPORT_PATH", HDT_MODULES}, {"UCX_LOG_LEVEL", "fatal"}});
  }
  static void expect_pass(const ProgramRun& done, const std::string& text) {
    EXPECT_EQ(done.status, 0) << done.output << done.errors;
    EXPECT_THAT(done.output, AllOf(HasSubstr(text), HasSubstr("[  PASSED  ] 1 test")));
  }
};

TEST_P(BackendTestInterfaces, AreEitherTestedOrRefusedInALine) {
  const std::string backend = GetParam();
  expect_pass(run(""), "backend " + backend + " on ");
  expect_pass(run("--nic lo"), "backend " + backend + " on lo (127.0.0.1)");
  expect_pass(run("--nic v0"), "backend " + backend + " on v0 (10.9.0.1)");
  expect_pass(run("--nic 10.9.0.1"), "backend " + backend + " on v0 (10.9.0.1)");
  expect_line(run("--nic w0"), "w0 (10.8.0.1, down): bring it up");
  expect_line(run("--nic v1"), "cannot use that interface (is it up, has it an address?)");
  expect_line(run("--nic lo,x0"), "name NICs of one subnet, or one alone");
}

TEST_P(BackendTestInterfaces, OfIpv6Alone) {
  const ProgramRun done = run("--nic x0");
  expect_pass(done, "backend " + std::string(GetParam()) + " on x0 (fd00:5::1)");
}

const char* const kBackends[] = {
    "tcp",
#ifdef HDT_HAVE_ofi
    "ofi",
#endif
#ifdef HDT_HAVE_ucx
    "ucx",
#endif
};
INSTANTIATE_TEST_SUITE_P(Backends, BackendTestInterfaces, ::testing::ValuesIn(kBackends),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace hdt::testing
