// hdtctl: asks a daemon about itself.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "base/config.h"
#include "base/log.h"
#include "libclient/session.h"
#include "tools/hdtctl/status_table.h"

namespace {

constexpr int kWrongUsage = 2;
constexpr int kFailed = 1;

int print_status(const std::string& socket, bool as_json) {
  const auto session = hdt::client::Session::open(socket);
  if (!session.is_ok()) {
    std::fprintf(stderr, "hdtctl: %s; name another daemon with --socket PATH\n", session.status().message().c_str());
    return kFailed;
  }
  const auto text = session.value()->status_json();
  if (!text.is_ok()) {
    std::fprintf(stderr, "hdtctl: %s\n", text.status().message().c_str());
    return kFailed;
  }
  const auto status = nlohmann::json::parse(text.value(), nullptr, false);
  if (status.is_discarded()) {
    std::fprintf(stderr, "hdtctl: the daemon at %s sent a status that is no JSON\n", socket.c_str());
    return kFailed;
  }
  std::fputs(as_json ? (status.dump(2) + "\n").c_str() : hdt::ctl::status_table(status).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  (void)hdt::init_client_log(std::getenv("HDT_LOG_LEVEL"));
  CLI::App app{"Asks the daemon of a node about itself.", "hdtctl"};
  app.footer(
      "Examples:\n"
      "  hdtctl status                          sessions, groups, peers and rails of this node\n"
      "  hdtctl --socket /tmp/a.sock status --json");
  app.require_subcommand(1);
  std::string socket = hdt::Config().node.socket;
  if (const char* variable = std::getenv("HDT_SOCKET")) socket = variable;
  app.add_option("--socket", socket, "The daemon's socket; default $HDT_SOCKET or " + hdt::Config().node.socket);
  bool as_json = false;
  auto* status = app.add_subcommand("status", "Sessions, groups, ranks, peers, rails with bytes and rates");
  status->add_flag("--json", as_json, "As JSON");
  status->fallthrough();  // --socket may stand behind the command, too
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "hdtctl: %s (hdtctl --help tells more)\n", error.what());
    return kWrongUsage;
  }
  return print_status(socket, as_json);
}
