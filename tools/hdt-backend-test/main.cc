// hdt-backend-test: runs the conformance suite of transports/transport.h on a backend, which may be
// built in or a module.
//
// The suite is GoogleTest's: the tests are in tests/protocol/transports, and their world is this tool's
// ModuleWorld. main() reads its own flags, leaves GoogleTest's to it, finds NICs that reach each other
// (prepare()), and then runs all tests.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/common/flag_checks.h"
#include "tools/hdt-backend-test/module_world.h"

namespace hdt::transport {

// The tests are compiled into this program; make_world gives each of them the chosen backend.
INSTANTIATE_TEST_SUITE_P(Backend, TransportConformance, testing::Values(&backend_test::make_world));
INSTANTIATE_TEST_SUITE_P(Backend, TransportStrangers, testing::Values(&backend_test::make_world));

}  // namespace hdt::transport

namespace {

constexpr int kWrongUsage = 2;
constexpr int kFailed = 1;

// One line on standard error. Returns the exit code for wrong usage.
int complain(const std::string& what) {
  std::fprintf(stderr, "hdt-backend-test: %s\n", what.c_str());
  return kWrongUsage;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{"Runs the conformance suite over a backend, on NICs of this machine.", "hdt-backend-test"};
  app.footer(
      "Modules are found as hdtcommd finds them: beside the programs, or in the folders of "
      "HDT_TRANSPORT_PATH.\n"
      "GoogleTest's flags work, too (--gtest_filter, --gtest_repeat, --gtest_output); HDT_TEST_SEED sets the "
      "seed.\n"
      "Examples:\n"
      "  hdt-backend-test rdma --nic mlx5_0,mlx5_1\n"
      "  hdt-backend-test tcp --nic lo --address 127.0.1.1,127.0.1.2\n"
      "  hdt-backend-test local --option addresses=127.0.1.1 --gtest_filter='*Closing*'\n"
      "Exit code: 0 all tests passed or were skipped, 1 a test failed, the backend cannot be used or its "
      "NICs do not "
      "reach each other, 2 wrong usage.");
  hdt::tools::last_one_counts(app);
  hdt::backend_test::Settings settings;
  std::vector<std::string> options;
  app.add_option("NAME", settings.backend, "The backend")->required();
  app.add_option("--option", options, "KEY=VALUE of [backend.NAME]; may be repeated")->type_name("KEY=VALUE");
  app.add_option(
         "--nic", settings.nics,
         "NICs to use, by name or address; default: those that are up. The first two that reach each other "
         "are "
         "connected; a single one is connected with itself, and so is one of the default ones where no two "
         "reach each other")
      ->type_name("NIC,...")
      ->delimiter(',');
  app.add_option("--address", settings.addresses,
                 "Addresses to use in place of the first NIC's own, such as several of loopback")
      ->type_name("ADDRESS,...")
      ->delimiter(',');
  app.add_option("--silent-address", settings.silent_address,
                 "An address that never answers; without it the test of that is skipped")
      ->type_name("ADDRESS");
  // GoogleTest's flags are extras.
  app.allow_extras();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    return complain(std::string(error.what()) + " (see hdt-backend-test --help)");
  }
  // The remaining words are GoogleTest's flags. GoogleTest does not see "--help", since its text would
  // hide ours.
  std::vector<std::string> rest = app.remaining();
  const auto foreign = std::find_if(rest.begin(), rest.end(),
                                    [](const std::string& word) { return !word.starts_with("--gtest_"); });
  if (foreign != rest.end())
    return complain("'" + *foreign + "' given; expected one NAME and the flags of --help");
  rest.insert(rest.begin(), "hdt-backend-test");
  std::vector<char*> words;
  for (std::string& word : rest) words.push_back(word.data());
  int count = static_cast<int>(words.size());
  // argv ends with a null pointer.
  words.push_back(nullptr);
  testing::InitGoogleTest(&count, words.data());
  // The values are the backend's business; it checks them when it is made.
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    if (equals == std::string::npos || equals == 0) {
      return complain("--option: '" + option + "' given; expected KEY=VALUE");
    }
    settings.options[option.substr(0, equals)] = option.substr(equals + 1);
  }
  // Before any test: wrong settings are wrong usage, and NICs that do not reach each other are a
  // failure.
  const auto prepared = hdt::backend_test::prepare(settings);
  if (!prepared.is_ok()) {
    const int code = complain(prepared.status().message());
    return prepared.status().code() == hdt::Code::kConfig ? code : kFailed;
  }
  // The result depends on the NICs, so they are printed with it.
  for (const std::string& line : prepared.value()) std::printf("not used: %s\n", line.c_str());
  for (const auto& nic : hdt::backend_test::chosen_nics()) {
    std::printf("backend %s on %s (%s)\n", settings.backend.c_str(), nic.name.c_str(), nic.address.c_str());
  }
  std::fflush(stdout);
  return RUN_ALL_TESTS();
}
