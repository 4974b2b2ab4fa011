// hdtctl: asks the daemon of a node about itself.
//
// Every command but `key` sends one question over the daemon's socket, as libhdt would, and gets one
// JSON answer. A table function (*_table.h) turns the answer into text; with --json it is printed as it
// is. An answer may come from a daemon of another release, so exceptions of its reading are errors of
// the daemon and are reported as such.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

#include "base/config.h"
#include "base/foreign_json.h"
#include "base/log.h"
#include "base/run_main.h"
#include "base/seqpacket.h"
#include "libclient/daemon_client/daemon_finder.h"
#include "libclient/daemon_client/session.h"
#include "tools/common/flag_checks.h"
#include "tools/hdtctl/backends_table.h"
#include "tools/hdtctl/class_table.h"
#include "tools/hdtctl/doctor.h"
#include "tools/hdtctl/explain_table.h"
#include "tools/hdtctl/json_fields.h"
#include "tools/hdtctl/key_command.h"
#include "tools/hdtctl/link_table.h"
#include "tools/hdtctl/status_table.h"
#include "tools/hdtctl/trace_file.h"
#include "tools/hdtctl/why_table.h"

namespace {

constexpr int kWrongUsage = 2;
constexpr int kFailed = 1;
// The longest answer is the trace of a large job.
constexpr size_t kMaxAnswerBytes = size_t{1} << 30;

// Turns an answer into text for people. Throws json::exception if a field is missing or has another type than
// expected (json_fields.h).
using Table = std::string (*)(const nlohmann::json&);
using Question = std::function<hdt::Result<std::string>(hdt::client::Session&)>;

// The daemon to ask.
struct Asked {
  std::string socket;  // "": the one that is found (open())
  int64_t timeout_ms = hdt::kSeqpacketConnectMs;

  hdt::Result<std::shared_ptr<hdt::client::Session>> open() {
    if (socket.empty()) {
      auto found = hdt::client::find_socket();
      if (!found.is_ok()) return found.status();
      socket = found.take();
    }
    return hdt::client::Session::open(socket, {}, timeout_ms);
  }
};

// Asks the daemon and passes the parsed answer to `use`, whose result is returned. If there is no
// answer, prints why on standard error and returns the exit code.
int with_answer(Asked& daemon, const Question& ask, const std::function<int(const nlohmann::json&)>& use) {
  // 1. Connect; 2. ask; 3. parse; 4. use. Each has a message of its own.
  const auto session = daemon.open();
  if (!session.is_ok()) {
    std::fprintf(stderr, "hdtctl: %s; name a daemon with --socket PATH\n",
                 session.status().message().c_str());
    return kFailed;
  }
  const auto text = ask(*session.value());
  if (!text.is_ok()) {
    std::fprintf(stderr, "hdtctl: %s\n", text.status().message().c_str());
    // The daemon refuses arguments that only it can check, as the name of a group.
    return text.status().code() == hdt::Code::kInvalidArgument ? kWrongUsage : kFailed;
  }
  const auto parsed = hdt::parse_foreign_json(text.value(), kMaxAnswerBytes);
  if (!parsed.is_ok()) {
    std::fprintf(stderr, "hdtctl: the daemon at %s sent an answer that cannot be read: %s\n",
                 daemon.socket.c_str(), parsed.status().message().c_str());
    return kFailed;
  }
  try {
    return use(parsed.value());
  } catch (const nlohmann::json::exception& error) {
    std::fprintf(stderr,
                 "hdtctl: the daemon at %s sent an answer that makes no sense to this hdtctl: %s; use the "
                 "hdtctl of the daemon's release\n",
                 daemon.socket.c_str(), error.what());
    return kFailed;
  }
}

// Asks and prints, as JSON or as a table.
int print_answer(Asked& daemon, bool as_json, const Question& ask, Table table) {
  return with_answer(daemon, ask, [&](const nlohmann::json& answer) {
    std::fputs(as_json ? (answer.dump(2) + "\n").c_str() : table(answer).c_str(), stdout);
    return 0;
  });
}

// Writes the trace of all nodes. Nodes that did not answer are named on standard error; the file is
// written without them.
int write_trace(Asked& daemon, const std::string& path) {
  return with_answer(
      daemon,
      [](auto& session) {
        return session.ask_json({"trace", ""});
      },
      [&](const nlohmann::json& answer) {
        for (const auto& node : hdt::ctl::list_at(answer, "nodes")) {
          // A part of a trace is better than none.
          if (hdt::ctl::flag_at(node, "answered")) continue;
          std::fprintf(stderr, "hdtctl: node %s is not in the trace: %s\n",
                       hdt::ctl::text_at(node, "name").c_str(), hdt::ctl::text_at(node, "silence").c_str());
        }
        errno = 0;
        std::ofstream file(path);
        file << hdt::ctl::trace_of(answer).dump() << "\n";
        if (file.flush()) return 0;
        std::fprintf(stderr, "hdtctl: --out: cannot write '%s': %s\n", path.c_str(), std::strerror(errno));
        return kFailed;
      });
}

// The text of make_key() goes to standard output.
int new_key(const std::string& output, const std::string& node) {
  const auto told = hdt::ctl::make_key(output, node);
  if (!told.is_ok()) {
    std::fprintf(stderr, "hdtctl: key new: %s\n", told.status().message().c_str());
    return kFailed;
  }
  std::fputs(told.value().c_str(), stdout);
  return 0;
}

// hdtctl doctor. `peers` are addresses of daemons; an address without a port gets the default one. A
// daemon that does not answer is a finding, and no reason to stop.
int examine(Asked& daemon, bool as_json, const std::vector<std::string>& peers) {
  std::string about;
  for (const std::string& peer : peers) {
    // "[::1]" ends with a bracket and has no port.
    const bool has_port = peer.rfind(':') != std::string::npos && !peer.ends_with(']');
    about +=
        (about.empty() ? "" : ",") + peer + (has_port ? "" : ":" + std::to_string(hdt::Config().nics.port));
  }
  nlohmann::json answer;
  const auto session = daemon.open();
  const auto told = session.is_ok() ? session.value()->ask_json({"doctor", about}) : session.status();
  auto parsed = told.is_ok() ? hdt::parse_foreign_json(told.value(), kMaxAnswerBytes) : told.status();
  if (parsed.is_ok()) answer = parsed.take();
  // No answer, or none that can be read, is the first finding.
  if (!answer.is_object()) answer = {{"error", parsed.status().message()}};
  hdt::ctl::Machine machine;
  std::ifstream("/proc/sys/kernel/yama/ptrace_scope") >> machine.ptrace_scope;
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) machine.open_files = files.rlim_cur;
  const auto findings = hdt::ctl::examine(answer, hdt::ctl::tried_paths(answer), machine);
  const std::string text =
      as_json ? hdt::ctl::doctor_json(findings).dump(2) + "\n" : hdt::ctl::doctor_table(findings);
  std::fputs(text.c_str(), stdout);
  return hdt::ctl::doctor_exit(findings);
}

int run(int argc, char** argv) {
  // The client library logs, as in any other program.
  (void)hdt::init_client_log(std::getenv("HDT_LOG_LEVEL"));
  CLI::App app{"Asks the daemon of a node about itself.", "hdtctl"};
  app.footer(
      "Examples:\n"
      "  hdtctl why                             why a job makes no progress: the first thing to ask\n"
      "  hdtctl status                          sessions, groups, peers and rails of this node\n"
      "  hdtctl --socket /tmp/a.sock status --json\n"
      "  hdtctl explain allreduce 64M --group dp\n"
      "  hdtctl explain link n1                 which backend connects this node with n1, and why not "
      "another\n"
      "  hdtctl backends                        which backends can be used on which NICs\n"
      "  hdtctl class set dp backends=rdma,tcp  other backends for class dp, while its jobs run\n"
      "  hdtctl doctor 10.0.0.2 10.0.0.3        is this node, and the way to those, fit for a job?\n"
      "  hdtctl key new --output cluster.key    the key that lets daemons of several hosts be peers\n"
      "  hdtctl trace --out trace.json          what all ranks did last, for ui.perfetto.dev");
  hdt::tools::last_one_counts(app);
  app.require_subcommand(1);
  Asked daemon;
  // The flag comes before the variable, and the variable before what is found.
  if (const char* variable = std::getenv("HDT_SOCKET")) daemon.socket = variable;
  app.add_option("--socket", daemon.socket,
                 "The daemon's socket; default $HDT_SOCKET, else " + hdt::Config().node.socket +
                     ", else that of this user's embedded daemon");
  int64_t seconds = daemon.timeout_ms / 1'000;
  app.add_option("--timeout", seconds,
                 "Seconds that the daemon has to take the connection and to answer it, 1 to 10; default " +
                     std::to_string(seconds))
      ->check(CLI::Range(1, 10));
  bool as_json = false;
  auto* status = app.add_subcommand("status", "Sessions, groups, ranks, peers, rails with bytes and rates");
  auto* explain = app.add_subcommand(
      "explain", "Which algorithm a call of a group takes between nodes, and why not another");
  auto* backends =
      app.add_subcommand("backends", "Backends, the NICs they can be used on, and why others cannot be used");
  auto* why = app.add_subcommand(
      "why", "Why groups make no progress: the cause in a sentence, and what each rank does");
  std::string why_group;
  why->add_option("GROUP", why_group,
                  "A group's id, as status shows it, or a class; default all groups of the node");
  why->footer("Examples:\n  hdtctl why\n  hdtctl why dp --json");
  auto* trace = app.add_subcommand(
      "trace",
      "Writes what the ranks of this node and of those it shares groups with did last, as a Chrome trace");
  std::string trace_path;
  trace->add_option("--out", trace_path, "The file to write")->check(hdt::tools::path_name())->required();
  trace->footer("Example:\n  hdtctl trace --out trace.json     then open it in ui.perfetto.dev");
  auto* doctor = app.add_subcommand(
      "doctor",
      "Checks a set-up before any job: NICs, large packets and data ports both ways, limits, clocks, "
      "versions, permissions, and lists what it has not tried; exit code 1: a problem");
  std::vector<std::string> peers;
  doctor->add_option("PEER", peers, "Addresses of other nodes' daemons, ADDRESS or ADDRESS:PORT (nics.port)");
  doctor->footer("Examples:\n  hdtctl doctor\n  hdtctl doctor 10.0.0.2 10.0.0.3:18520 --json");
  auto* link = explain->add_subcommand("link", "Which backend connects this node with another one, and why");
  std::string node;
  link->add_option("NODE", node, "Name of the other node")->required();
  link->footer("Example:\n  hdtctl explain link n1");
  auto* classes = app.add_subcommand("class", "Changes classes of groups while they run");
  auto* set = classes->add_subcommand(
      "set", "Changes a class, on this node and all that share a group of the class with it");
  std::string group_class;
  std::vector<std::string> settings;
  set->add_option("NAME", group_class, "Name of the class")->required();
  set->add_option("SETTING", settings,
                  "KEY=VALUE: backends, nics, priority, weight, algorithm; lists are separated by commas")
      ->required();
  set->footer(
      "Running groups move to other links without a pause. If any node cannot, nothing is changed. It lasts "
      "until the daemons\n"
      "are started again; their files hold from then on. `algorithm` is for groups that are made "
      "afterwards.\n"
      "Examples:\n"
      "  hdtctl class set dp backends=tcp,rdma nics=eth1\n"
      "  hdtctl class set pp priority=latency\n"
      "  hdtctl class set dp weight=3");
  classes->require_subcommand(1);
  auto* keys = app.add_subcommand("key", "Makes keys, by which daemons know each other");
  auto* fresh = keys->add_subcommand("new", "Makes a cluster key, the same for all nodes, or a node key");
  std::string key_file = "/etc/hdt/cluster.key";
  std::string key_node;
  fresh
      ->add_option(
          "--output", key_file,
          "The file to make, with mode 0600; one that exists is not overwritten; default " + key_file)
      ->check(hdt::tools::path_name());
  fresh->add_option(
      "--node", key_node,
      "Make the node key of this node instead, for node.key in its node.state_folder, and print the line "
      "that security.nodes_file has for it (--output is needed)");
  fresh->footer(
      "Daemons without a cluster key have peers on their own host only. Each also makes a node key by "
      "itself; node keys made\n"
      "here and listed in security.nodes_file of all nodes shut out everybody else from the start.\n"
      "Examples:\n"
      "  hdtctl key new                                  /etc/hdt/cluster.key, to be copied to every node\n"
      "  hdtctl key new --output cluster.key\n"
      "  hdtctl key new --node n0 --output n0.key >>nodes");
  keys->require_subcommand(1);
  for (auto* command : {status, explain, backends, link, why, trace, doctor, classes, set}) {
    if (command != trace) command->add_flag("--json", as_json, "As JSON");
    command->fallthrough();  // --socket may stand behind the command, too
  }
  hdt::ipc::ExplainRequest request;
  request.type = "float32";
  auto* operation = explain->add_option("OPERATION", request.what,
                                        "allreduce, reduce, reduce_scatter, allgather, broadcast or barrier");
  auto* size =
      explain
          ->add_option("SIZE", request.bytes,
                       "Bytes of the call's `count` elements, for allgather and reduce_scatter of one rank's "
                       "block; K, M and "
                       "G are powers of 1024")
          ->transform(CLI::AsSizeValue(false))
          ->transform(hdt::tools::not_below_zero());  // comes first
  auto* group = explain->add_option("--group", request.group,
                                    "A group's id, as status shows it, or the class of the only one");
  explain->add_option("--type", request.type, "Type of the elements; default float32");
  explain->add_option("--root", request.root, "Root of a broadcast or reduce; default 0");
  explain->footer(
      "Examples:\n"
      "  hdtctl explain allreduce 64M --group dp\n"
      "  hdtctl explain broadcast 4K --group 1a2b3c4d --type bfloat16 --root 2 --json");
  try {
    app.parse(argc, argv);
    // These are required for `explain`, but not for `explain link`, which CLI11 cannot express.
    for (const auto* needed : {operation, size, group}) {
      if (explain->parsed() && !link->parsed() && needed->count() == 0)
        throw CLI::RequiredError(needed->get_name());
    }
    if (!key_node.empty() && fresh->count("--output") == 0) throw CLI::RequiredError("--output");
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help
    std::fprintf(stderr, "hdtctl: %s (see hdtctl --help)\n", error.what());
    return kWrongUsage;
  }
  daemon.timeout_ms = seconds * 1'000;
  if (fresh->parsed()) return new_key(key_file, key_node);
  if (set->parsed()) {
    // The question is the class, and one line for each setting.
    std::string question = group_class;
    for (const std::string& setting : settings) {
      if (setting.find('=') == std::string::npos || setting.find('\n') != std::string::npos) {
        std::fprintf(stderr, "hdtctl: class set: '%s' given; expected KEY=VALUE, e.g. weight=3\n",
                     setting.c_str());
        return kWrongUsage;
      }
      question += "\n" + setting;
    }
    return print_answer(
        daemon, as_json,
        [&](auto& session) {
          return session.ask_json({"class", question});
        },
        hdt::ctl::class_table);
  }
  if (why->parsed()) {
    return print_answer(
        daemon, as_json,
        [&](auto& session) {
          return session.ask_json({"why", why_group});
        },
        hdt::ctl::why_table);
  }
  if (doctor->parsed()) return examine(daemon, as_json, peers);
  if (trace->parsed()) return write_trace(daemon, trace_path);
  if (link->parsed()) {
    return print_answer(
        daemon, as_json,
        [&](auto& session) {
          return session.ask_json({"link", node});
        },
        hdt::ctl::link_table);
  }
  if (backends->parsed()) {
    return print_answer(
        daemon, as_json,
        [](auto& session) {
          return session.ask_json({"backends", ""});
        },
        hdt::ctl::backends_table);
  }
  if (explain->parsed()) {
    return print_answer(
        daemon, as_json, [&](auto& session) { return session.explain_json(request); },
        hdt::ctl::explain_table);
  }
  return print_answer(
      daemon, as_json, [](auto& session) { return session.status_json(); }, hdt::ctl::status_table);
}

}  // namespace

// Exceptions of a daemon's answer end where it is read. Those that come here are for want of memory.
int main(int argc, char** argv) {
  return hdt::run_main("hdtctl", kFailed, [&] { return run(argc, argv); });
}
