// node_process.h: a node for tests: a real hdtcommd on a loopback address of its own, with its socket in a
// temporary folder.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/integration/communicator/child_process.h"

namespace hdt::testing {

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

class NodeProcess {
 public:
  // Node `number` is "n<number>" at 127.0.1.<number + 1>, or where HDT_TEST_ADDRESSES says (one word for each
  // node), and has the flags of HDT_TEST_FLAGS, too: for NICs that are not loopback. Returns when it serves;
  // throws if it does not.
  NodeProcess(const TemporaryFolder& folder, int number, const std::vector<std::string>& flags = {},
              const std::map<std::string, std::string>& environment = {});

  // Ends the daemon in order, unless the test has ended it, and fails the test if it ends in any other way:
  // so a sanitizer's report in the daemon is a failure here.
  ~NodeProcess();

  // Starts it again as it was, after it has been killed.
  void start();

  const std::string& socket() const { return socket_; }
  ChildProcess& process() { return *process_; }
  static std::string program();

 private:
  std::string socket_;
  std::vector<std::string> command_;
  std::map<std::string, std::string> environment_;
  std::string log_;
  std::unique_ptr<ChildProcess> process_;
};

// The outcome of a program that was run to its end.
struct ProgramRun {
  int status;  // -1: it did not end in time
  std::string output, errors;
};
ProgramRun run_program(const std::vector<std::string>& command,
                       const std::map<std::string, std::string>& environment = {});

}  // namespace hdt::testing
