// doctor.cc: see doctor.h.
#include "daemon/control/doctor.h"

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "base/address.h"
#include "base/foreign_json.h"
#include "daemon/diagnosis/surroundings.h"
#include "daemon/protocol/version.h"
#include "transports/loader/loader.h"

namespace hdt::daemon {

namespace {

// Times in ms. hdtctl waits 10 s: for the descriptions, then for the trials. The trials last long enough
// for a path on which large packets vanish to be detected and used with smaller ones.
constexpr int64_t kDescribeMs = 3'000;
constexpr int64_t kTrialMs = 3'500;
constexpr int64_t kPathsMs = 5'000;

// The ends in a "paths" question: "NIC|ADDRESS", separated by commas. Foreign: what has no bar is
// skipped.
std::vector<RailEnd> ends_of(const std::string& text) {
  std::vector<RailEnd> ends;
  for (size_t at = 0; at < text.size();) {
    const size_t comma = std::min(text.find(',', at), text.size());
    const std::string end = text.substr(at, comma - at);
    if (const size_t bar = end.find('|'); bar != std::string::npos)
      ends.push_back({"tcp", end.substr(0, bar), end.substr(bar + 1)});
    at = comma + 1;
  }
  return ends;
}

// The tcp ends in another daemon's description. Foreign JSON: what is of another type is skipped.
std::vector<RailEnd> ends_told(const nlohmann::json& description) {
  std::vector<RailEnd> ends;
  // Every step checks the type first: at(), [] and get() would throw or insert.
  const auto rails = description.is_object() ? description.find("rails") : description.end();
  if (!description.is_object() || rails == description.end() || !rails->is_array()) return ends;
  for (const auto& rail : *rails) {
    const auto text = [&](const char* key) {
      const auto found = rail.is_object() ? rail.find(key) : rail.end();
      return rail.is_object() && found != rail.end() && found->is_string() ? found->get<std::string>()
                                                                           : std::string();
    };
    // Only tcp is tried: other backends' connections are made by their libraries.
    if (text("backend") == "tcp") ends.push_back({"tcp", text("nic"), text("address")});
  }
  return ends;
}

// In the order of the trials, by which they are matched to the peers.
nlohmann::json to_json(const std::vector<PathTrial>& trials) {
  nlohmann::json list = nlohmann::json::array();
  for (const PathTrial& trial : trials) list.push_back(to_json(trial));
  return list;
}

}  // namespace

// Everything that another node or hdtctl needs to judge this one: its NICs and data ports, versions,
// clock, and the settings that decide who can be a peer.
nlohmann::json Doctor::description() const {
  nlohmann::json nics = nlohmann::json::array();
  for (const auto& [backend, info] : daemon_.plan.nics()) {
    nics.push_back({{"backend", backend},
                    {"name", info.name},
                    {"address", info.address},
                    {"mtu", info.mtu},
                    {"megabits", info.bits_per_second / 1'000'000},
                    {"up", info.up}});
  }
  // The first engine stands for all: they use the same NICs.
  nlohmann::json rails = nlohmann::json::array();
  for (const RailEnd& end : daemon_.node.rails.front()) {
    rails.push_back({{"backend", end.backend}, {"nic", end.nic}, {"address", end.address}});
  }
  // Wall clock time, so that hdtctl can compare nodes' clocks as people see them.
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  nlohmann::json described = surroundings(daemon_.config.node.socket);
  described.update({{"node", daemon_.node.name},
                    {"software", kSoftware},
                    {"control", daemon_.node.address},
                    {"nics", nics},
                    {"rails", rails},
                    {"session_version", ipc::kSessionVersion},
                    {"peer_version", kPeerVersion},
                    {"wall_ns", wall.tv_sec * kNsPerSecond + wall.tv_nsec},
                    {"cluster_key", !daemon_.trust->cluster_key().empty()},
                    {"own_host_only", daemon_.own_host_only},
                    {"security_transport", daemon_.config.security.transport},
                    {"allow_groups", daemon_.config.security.allow_groups},
                    {"embedded", daemon_.host_pid != 0},
                    {"state_folder", daemon_.config.node.state_folder}});
  return described;
}

// One trial from each tcp NIC of this node to each of these ends. Every pair is tried: a job may use any
// NIC with any other one.
std::vector<PathTrial> Doctor::paths_to(const std::vector<RailEnd>& ends) const {
  std::vector<PathTrial> paths;
  for (const auto& [backend, info] : daemon_.plan.nics()) {
    if (backend != "tcp") continue;
    for (const RailEnd& end : ends) {
      PathTrial& path = paths.emplace_back();
      path.from = info;
      path.to_nic = end.nic;
      path.to = end.address;
    }
  }
  return paths;
}

// An error of the backend, or too many trials at once, is a result of the paths as well.
template <typename Then>
// NOLINTNEXTLINE(performance-unnecessary-value-param): clang-tidy does not see in a template that it is moved
void Doctor::try_paths(std::vector<PathTrial> paths, Then then) {
  // The trials run on threads of their own, which hand the results to the control thread.
  trials_.start(
      [plan = daemon_.plan, security = daemon_.security] {
        // On the trial's thread: a backend belongs to the thread that uses it.
        return transport::make_backend("tcp", plan.options("tcp"), plan.folders(), security);
      },
      std::move(paths), kTrialMs,
      [this, then = std::move(then)](std::vector<PathTrial> tried) {
        daemon_.mailbox.post([then, tried = std::move(tried)] { then(tried); });
      });
}

// Answers another node's question whether this node reaches its data ports.
void Doctor::answer_paths(ChannelId channel, const Inquiry& inquiry) {
  try_paths(paths_to(ends_of(inquiry.what.substr(kPathsQuestion.size()))),
            [this, channel, number = inquiry.number](const std::vector<PathTrial>& tried) {
              const std::string text =
                  to_json(tried).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
              daemon_.network->send(channel, Reply{number, Code::kSuccess, now_ns(), text});
            });
}

// `about`: addresses of other daemons, separated by commas.
void Doctor::answer(uint64_t session, const std::string& about) {
  std::vector<std::string> addresses;
  for (size_t at = 0; at < about.size();) {
    const size_t comma = std::min(about.find(',', at), about.size());
    if (comma > at) addresses.push_back(about.substr(at, comma - at));
    at = comma + 1;
  }
  // No viewer: a description names no groups.
  daemon_.inquiries->ask(
      addresses, "description", {}, kDescribeMs, [this, session](const std::vector<Answer>& answers) {
        // Peers that did not answer are listed as well, each with its error: that is what the
        // doctor is asked for.
        nlohmann::json answer = {{"own", description()}, {"peers", nlohmann::json::array()}};
        std::vector<std::string> there;
        std::vector<PathTrial> paths;
        std::vector<size_t> counts;  // of paths, by peer
        for (const Answer& peer : answers) {
          nlohmann::json told = {{"address", peer.address}, {"round_trip_ns", peer.round_trip_ns}};
          std::vector<PathTrial> ways;
          if (peer.status.is_ok()) {
            auto description = parse_foreign_json(peer.text);
            if (description.is_ok()) {
              told["description"] = description.take();
              there.push_back(peer.address);
              ways = paths_to(ends_told(told["description"]));
            } else {
              told["error"] = "what it says of itself cannot be read: " + description.status().message();
            }
          } else {
            told["error"] = peer.status.message();
          }
          counts.push_back(ways.size());
          paths.insert(paths.end(), ways.begin(), ways.end());
          answer["peers"].push_back(told);
        }
        ask_paths(session, std::move(answer), there, std::move(paths), std::move(counts));
      });
}

// Tries the paths to the peers while the peers try the paths back.
void Doctor::ask_paths(uint64_t session, nlohmann::json answer, const std::vector<std::string>& there,
                       std::vector<PathTrial> paths, std::vector<size_t> counts) {
  // Held by the two halves; it goes with the last of them.
  // NOLINTNEXTLINE(bugprone-exception-escape): nothing in JSON's destructor throws
  struct Both {
    nlohmann::json answer;
    // how many of the two are not done
    int open = 2;
  };
  auto both = std::make_shared<Both>();
  both->answer = std::move(answer);
  // Both halves run at the same time, one on threads of trials and one on other nodes; whichever is last
  // answers. Both end on the control thread, so the count needs no lock.
  const auto finish = [this, session, both] {
    if (--both->open == 0) send_answer(daemon_, session, both->answer);
  };
  std::string question(kPathsQuestion);
  for (const RailEnd& end : daemon_.node.rails.front()) {
    if (end.backend != "tcp") continue;
    const std::string text =
        (question.size() == kPathsQuestion.size() ? "" : ",") + end.nic + "|" + end.address;
    // Ends that do not fit into the question are not tried.
    if (question.size() + text.size() <= ipc::kMaxText) question += text;
  }
  daemon_.inquiries->ask(there, question, {}, kPathsMs, [both, finish](const std::vector<Answer>& answers) {
    // The answers are matched to the peers by address: only those that have described themselves were
    // asked.
    for (const Answer& way : answers) {
      for (nlohmann::json& peer : both->answer["peers"]) {
        if (peer["address"] != way.address) continue;
        auto back = way.status.is_ok() ? parse_foreign_json(way.text) : Result<nlohmann::json>(way.status);
        if (back.is_ok()) peer["back"] = back.take();
        if (!back.is_ok()) peer["back_error"] = back.status().message();
      }
    }
    finish();
  });
  try_paths(std::move(paths),
            [both, finish, counts = std::move(counts)](const std::vector<PathTrial>& tried) {
              // `tried` is in the order of `paths`: counts[0] of the first peer, then those of the next.
              size_t next = 0;
              for (size_t peer = 0; peer < counts.size(); ++peer) {
                const auto first = tried.begin() + static_cast<std::ptrdiff_t>(next);
                next += counts[peer];
                both->answer["peers"][peer]["there"] =
                    to_json({first, tried.begin() + static_cast<std::ptrdiff_t>(next)});
              }
              finish();
            });
}

}  // namespace hdt::daemon
