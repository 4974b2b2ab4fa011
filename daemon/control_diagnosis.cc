// What the control thread does for diagnosis: it collects facts of this node and of those it shares groups with, and answers
// hdtctl why, trace and doctor, other daemons, and ranks whose deadline has passed.
#include <sys/resource.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "base/log.h"
#include "daemon/control.h"
#include "daemon/verdict.h"
#include "daemon/version.h"

namespace hdt::daemon {

using session::Operation;

namespace {

// hdtctl why answers within 5 s; a rank whose deadline has passed waits less.
constexpr int64_t kAskMs = 3'000;
constexpr int64_t kDeadlineAskMs = 1'500;
constexpr size_t kMostNodes = 1'024;
// Groups that have ended stay known, with what their ranks did, up to this many ranks.
constexpr size_t kPastRanks = 64;

bool is_meant(const GroupFacts& group, const std::string& name) {
  return name.empty() || group.group_class == name || group.id == name ||
         (name.size() == 8 && group.id.ends_with(name));
}

double seconds(int64_t ns) { return static_cast<double>(ns) / kNsPerSecond; }

nlohmann::json to_json(const Verdict& verdict) {
  return {{"cause", name_of(verdict.cause)}, {"trouble", is_trouble(verdict.cause)},
          {"group", verdict.group_id},       {"class", verdict.group_class},
          {"ranks", verdict.ranks},          {"node", verdict.node},
          {"operation", verdict.operation},  {"waiting_s", verdict.waiting_s},
          {"sentence", verdict.sentence}};
}

nlohmann::json row_of(const NodeFacts& node, const RankFacts& rank) {
  nlohmann::json row = {{"rank", rank.rank},       {"node", node.name},   {"pid", rank.pid},
                        {"process", rank.process}, {"calls", rank.calls}, {"left", rank.left},
                        {"end", rank.end},         {"in", nullptr},       {"last", nullptr}};
  const auto name = [](const Operation& o) {
    return (o.is_message() ? "message " : "call ") + std::to_string(o.sequence) + " (" + o.text + ")";
  };
  for (const Operation& operation : rank.operations) {
    if (operation.ended_ns != 0) {
      row["last"] = name(operation);
      row["last_ended_s"] = seconds(node.now_ns - operation.ended_ns);
    } else if (row["in"].is_null()) {
      row["in"] = name(operation);
      row["in_s"] = seconds(node.now_ns - operation.entered_ns);
      row["moved"] = operation.moved;
      row["others_there"] = operation.started_ns != 0;
    }
  }
  return row;
}

uint64_t limit_of(int which) {
  rlimit limit{};
  return ::getrlimit(static_cast<__rlimit_resource>(which), &limit) == 0 ? limit.rlim_cur : 0;
}

}  // namespace

void Control::remember(GroupFacts ended) {
  complete(ended, TickScale(made_, TickMoment::now()));
  past_ranks_ += ended.local.size();
  past_.push_back(std::move(ended));
  while (past_ranks_ > kPastRanks && past_.size() > 1) {
    past_ranks_ -= past_.front().local.size();
    past_.pop_front();
  }
}

void Control::local_facts(bool all_operations, std::function<void(NodeFacts)> then) {
  struct Parts {
    std::vector<std::vector<GroupFacts>> groups;
    std::vector<std::vector<RailFacts>> rails;
  };
  auto parts = std::make_shared<Parts>();
  parts->groups.resize(engines_.size());
  parts->rails.resize(engines_.size());
  on_every_engine(
      [parts](Engine& engine) {
        parts->groups[engine.index()] = engine.group_facts();
        parts->rails[engine.index()] = engine.rail_facts();
      },
      [this, parts, all_operations, then = std::move(then)] {
        NodeFacts facts;
        facts.name = node_.name;
        facts.control = node_.address;
        for (auto& part : parts->groups)
          std::move(part.begin(), part.end(), std::back_inserter(facts.groups));
        for (auto& part : parts->rails) std::move(part.begin(), part.end(), std::back_inserter(facts.rails));
        const TickScale scale(made_, TickMoment::now());
        for (GroupFacts& group : facts.groups) complete(group, scale);
        // A group may end between an engine's answer and now.
        for (const GroupFacts& ended : past_) {
          const auto is_it = [&](const GroupFacts& group) { return group.id == ended.id; };
          if (std::none_of(facts.groups.begin(), facts.groups.end(), is_it)) facts.groups.push_back(ended);
        }
        facts.now_ns = now_ns();
        if (!all_operations) keep_recent(facts);
        then(std::move(facts));
      });
}

void Control::all_facts(bool all_operations, int64_t budget_ms,
                        std::function<void(std::vector<NodeFacts>)> then) {
  local_facts(all_operations, [this, all_operations, budget_ms, then = std::move(then)](NodeFacts own) {
    std::map<std::string, std::string> others;  // name by address
    for (const GroupFacts& group : own.groups) {
      for (const GroupNodeFacts& node : group.nodes) {
        if (node.control != node_.address && others.size() < kMostNodes) others[node.control] = node.name;
      }
    }
    std::vector<std::string> addresses;
    for (const auto& [address, name] : others) addresses.push_back(address);
    const auto collect = [others, then,
                          facts = std::make_shared<NodeFacts>(std::move(own))](std::vector<Answer> answers) {
      std::vector<NodeFacts> all = {std::move(*facts)};
      all[0].now_ns = now_ns();
      for (const Answer& answer : answers) {
        auto told = answer.status.is_ok() ? facts_of(answer.text) : Result<NodeFacts>(answer.status);
        if (!told.is_ok()) {
          NodeFacts silent;
          silent.answered = false;
          silent.silence = told.status().message();
          told = silent;
        }
        NodeFacts& node = all.emplace_back(told.take());
        node.name = others.at(answer.address);
        node.control = answer.address;
        node.offset_ns = answer.offset_ns;
      }
      then(std::move(all));
    };
    inquiries_->ask(addresses, all_operations ? "operations" : "facts", budget_ms, collect);
  });
}

nlohmann::json Control::description() const {
  nlohmann::json nics = nlohmann::json::array();
  for (const auto& [backend, info] : plan_.nics()) {
    nics.push_back({{"backend", backend},
                    {"name", info.name},
                    {"address", info.address},
                    {"mtu", info.mtu},
                    {"megabits", info.bits_per_second / 1'000'000},
                    {"up", info.up}});
  }
  nlohmann::json rails = nlohmann::json::array();
  for (const RailEnd& end : node_.rails.front()) {
    rails.push_back({{"backend", end.backend}, {"nic", end.nic}, {"address", end.address}});
  }
  timespec wall{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  return {{"node", node_.name},
          {"software", kSoftware},
          {"control", node_.address},
          {"nics", nics},
          {"rails", rails},
          {"session_version", session::kSessionVersion},
          {"peer_version", kPeerVersion},
          {"wall_ns", wall.tv_sec * kNsPerSecond + wall.tv_nsec},
          {"cluster_key", !cluster_key_.empty()},
          {"allow_groups", config_.security.allow_groups},
          {"embedded", host_pid_ != 0},
          {"memlock_bytes", limit_of(RLIMIT_MEMLOCK)},
          {"open_files", limit_of(RLIMIT_NOFILE)},
          {"state_folder", config_.node.state_folder}};
}

void Control::on_inquiry(ChannelId channel, const Inquiry& inquiry) {
  const auto answer = [this, channel, number = inquiry.number](const nlohmann::json& json) {
    const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    network_->send(channel, encode(Reply{number, Code::kSuccess, now_ns(), text}));
  };
  if (inquiry.what == "clock") return answer(nlohmann::json::object());
  if (inquiry.what == "description") return answer(description());
  if (inquiry.what == "facts" || inquiry.what == "operations") {
    return local_facts(inquiry.what == "operations",
                       [answer](const NodeFacts& facts) { answer(to_text(facts)); });
  }
  network_->send(channel,
                 encode(Reply{inquiry.number, Code::kInvalidArgument, now_ns(),
                              "node " + node_.name + " does not know the question '" + inquiry.what + "'"}));
}

void Control::answer_why(uint64_t session, const std::string& name) {
  all_facts(false, kAskMs, [this, session, name](const std::vector<NodeFacts>& facts) {
    std::set<std::string> meant, concerned;  // ids of groups, addresses of their nodes' daemons
    for (const NodeFacts& node : facts) {
      for (const GroupFacts& group : node.groups) {
        const bool over = group.ended && group.code == 0;
        if (!is_meant(group, name) || (over && name.empty())) continue;
        meant.insert(group.id);
        for (const GroupNodeFacts& place : group.nodes) concerned.insert(place.control);
      }
    }
    if (meant.empty() && !name.empty()) {
      sessions_->send(session, session::encode_text(session::Kind::kAnswerIs, Code::kInvalidUsage,
                                                    "node " + node_.name + " has and had no group '" + name +
                                                        "'; hdtctl status lists its groups"));
      return;
    }
    nlohmann::json answer = {
        {"node", node_.name}, {"silent", nlohmann::json::array()}, {"verdicts", nlohmann::json::array()}};
    for (const NodeFacts& node : facts) {
      if (!node.answered && concerned.contains(node.control))
        answer["silent"].push_back({{"node", node.name}, {"why", node.silence}});
    }
    for (const Verdict& verdict : judge(facts)) {
      if (!meant.contains(verdict.group_id)) continue;
      nlohmann::json told = to_json(verdict);
      told["table"] = nlohmann::json::array();
      told["peers"] = nlohmann::json::array();
      for (const NodeFacts& node : facts) {
        for (const GroupFacts& group : node.groups) {
          if (group.id != verdict.group_id) continue;
          for (const RankFacts& rank : group.local) told["table"].push_back(row_of(node, rank));
          for (const PeerFacts& peer : group.peers) {
            told["peers"].push_back({{"node", node.name},
                                     {"peer", peer.node},
                                     {"linked", peer.linked},
                                     {"chunks_out", peer.writes},
                                     {"chunks_in", peer.arrivals},
                                     {"in_flight", peer.in_flight},
                                     {"quiet_s", peer.quiet_ns < 0 ? -1.0 : seconds(peer.quiet_ns)}});
          }
        }
      }
      answer["verdicts"].push_back(told);
    }
    send_json(session, session::encode_text(session::Kind::kAnswerIs, Code::kSuccess, ""), answer);
  });
}

void Control::answer_trace(uint64_t session) {
  all_facts(true, kAskMs, [this, session](const std::vector<NodeFacts>& facts) {
    nlohmann::json answer = {{"node", node_.name}, {"nodes", nlohmann::json::array()}};
    for (const NodeFacts& node : facts) answer["nodes"].push_back(to_text(node));
    send_json(session, session::encode_text(session::Kind::kAnswerIs, Code::kSuccess, ""), answer);
  });
}

// `about`: addresses of other daemons, with commas between.
void Control::answer_doctor(uint64_t session, const std::string& about) {
  std::vector<std::string> addresses;
  for (size_t at = 0; at < about.size();) {
    const size_t comma = std::min(about.find(',', at), about.size());
    if (comma > at) addresses.push_back(about.substr(at, comma - at));
    at = comma + 1;
  }
  inquiries_->ask(addresses, "description", kAskMs, [this, session](const std::vector<Answer>& answers) {
    nlohmann::json answer = {{"own", description()}, {"peers", nlohmann::json::array()}};
    for (const Answer& peer : answers) {
      nlohmann::json told = {{"address", peer.address}, {"round_trip_ns", peer.round_trip_ns}};
      if (peer.status.is_ok()) told["description"] = nlohmann::json::parse(peer.text, nullptr, false);
      if (!peer.status.is_ok()) told["error"] = peer.status.message();
      answer["peers"].push_back(told);
    }
    send_json(session, session::encode_text(session::Kind::kAnswerIs, Code::kSuccess, ""), answer);
  });
}

// The group fails with the verdict; others of its ranks that come with theirs meanwhile hear of it as the failure.
void Control::on_deadline(uint64_t session, const Seat& seat, const session::GroupNotice& notice) {
  if (!in_diagnosis_.insert(seat.group).second) return;
  all_facts(false, kDeadlineAskMs, [this, session, seat, notice](const std::vector<NodeFacts>& facts) {
    in_diagnosis_.erase(seat.group);
    Engine* engine = engines_[seat.engine].get();
    std::string text = notice.text;
    int32_t rank = -1;
    for (const Verdict& verdict : judge(facts)) {
      if (verdict.group_id != id_text(seat.group)) continue;
      text += "; " + verdict.sentence;
      if (!verdict.ranks.empty()) rank = static_cast<int32_t>(verdict.ranks.front());
    }
    engine->post([engine, session, handle = notice.handle, rank, text] {
      engine->fail(session, handle, Code::kTimeout, rank, text);
    });
  });
}

}  // namespace hdt::daemon
