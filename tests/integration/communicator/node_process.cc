#include "tests/integration/communicator/node_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <stdexcept>

#include "base/seqpacket.h"

namespace hdt::testing {

namespace {
constexpr int64_t kStartMs = 30'000;
constexpr int64_t kEndMs = 60'000;
constexpr int64_t kProgramMs = 30'000;
constexpr int kKilled = 128 + SIGKILL;

// The words of a variable of the environment.
std::vector<std::string> words_of(const char* variable) {
  const char* text = std::getenv(variable);
  std::istringstream words(text == nullptr ? "" : text);
  return {std::istream_iterator<std::string>(words), {}};
}

std::string address_of(int node) {
  const auto addresses = words_of("HDT_TEST_ADDRESSES");
  return addresses.empty() ? "127.0.1." + std::to_string(node + 1) : addresses.at(static_cast<size_t>(node));
}
}  // namespace

TemporaryFolder::TemporaryFolder() {
  char name[] = "/tmp/hdt-test-XXXXXX";
  if (::mkdtemp(name) == nullptr) throw std::runtime_error("mkdtemp");
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string NodeProcess::program() {
  // Another program to start in its place: one that enters the service's sandbox first
  // (tests/faults/service).
  const char* const instead = std::getenv("HDT_TEST_HDTCOMMD");
  return instead != nullptr ? instead : HDT_HDTCOMMD;
}

NodeProcess::NodeProcess(const TemporaryFolder& folder, int number, const std::vector<std::string>& flags,
                         const std::map<std::string, std::string>& environment) {
  const std::string name = "n" + std::to_string(number);
  socket_ = folder.file(name + ".sock");
  command_ = {program(),          "--node.name", name, "--node.socket", socket_, "--nics.addresses",
              address_of(number), "--nics.port", "0"};
  // Addresses of NICs, of a network that the test has to itself.
  if (!words_of("HDT_TEST_ADDRESSES").empty())
    command_.insert(command_.end(), {"--security.insecure", "true"});
  for (const std::string& word : words_of("HDT_TEST_FLAGS")) command_.push_back(word);
  command_.insert(command_.end(), flags.begin(), flags.end());
  environment_ = environment;
  log_ = folder.file(name + ".log");
  start();
}

void NodeProcess::start() {
  process_ = std::make_unique<ChildProcess>(command_, environment_, log_);
  const Deadline deadline = Deadline::after_ms(kStartMs);
  while (!connect_seqpacket(socket_).is_ok()) {
    if (deadline.expired() || process_->wait(Deadline::after_ms(2)).has_value()) {
      throw std::runtime_error("hdtcommd does not start: " + process_->errors());
    }
  }
}

NodeProcess::~NodeProcess() {
  if (process_ == nullptr) return;
  process_->signal(SIGTERM);
  const auto status = process_->wait(Deadline::after_ms(kEndMs));
  if (status == 0 || status == kKilled) return;
  std::fprintf(stderr, "hdtcommd at %s ended with %d\n%s\n", socket_.c_str(), status.value_or(-1),
               process_->errors().c_str());
  ADD_FAILURE() << "hdtcommd did not end in order";
  // Daemons that all tests share end after the last test, when a failure no longer counts.
  if (::testing::UnitTest::GetInstance()->current_test_info() == nullptr) std::_Exit(1);
}

ProgramRun run_program(const std::vector<std::string>& command,
                       const std::map<std::string, std::string>& environment) {
  TemporaryFolder folder;
  ChildProcess process(command, environment, folder.file("errors"));
  std::string output;
  const Deadline deadline = Deadline::after_ms(kProgramMs);
  while (const auto line = process.read_line(deadline)) output += *line + "\n";
  const auto status = process.wait(deadline);
  return {status.value_or(-1), output, process.errors()};
}

}  // namespace hdt::testing
