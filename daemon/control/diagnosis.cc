// diagnosis.cc: see diagnosis.h.
#include "daemon/control/diagnosis.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "base/saturate.h"
#include "daemon/control/doctor.h"
#include "daemon/diagnosis/making_verdict.h"
#include "daemon/diagnosis/verdict.h"

namespace hdt::daemon {

using ipc::Operation;

namespace {

// How long other nodes have to answer, in ms. hdtctl why answers within 5 s; a rank whose deadline has
// passed waits less.
constexpr int64_t kAskMs = 3'000;
constexpr int64_t kDeadlineAskMs = 1'500;
// The maximum number of other nodes that are asked.
constexpr size_t kMostNodes = 1'024;
// Groups that have ended stay known, with what their ranks did, up to this many ranks. The latest one
// stays in any case.
constexpr size_t kPastRanks = 64;

// Whether a user who says `name` means this group: "" is every group, else a class, a public name, or its
// first 8 digits.
bool is_meant(const std::string& id, const std::string& group_class, const std::string& name) {
  return name.empty() || group_class == name || id == name || (name.size() == 8 && id.starts_with(name));
}

// For JSON: seconds are easier to read than ns.
double seconds(int64_t ns) { return static_cast<double>(ns) / kNsPerSecond; }

// The fields that hdtctl prints and tests read.
nlohmann::json to_json(const Verdict& verdict) {
  return {{"cause", name_of(verdict.cause)}, {"trouble", is_trouble(verdict.cause)},
          {"group", verdict.group_id},       {"class", verdict.group_class},
          {"ranks", verdict.ranks},          {"node", verdict.node},
          {"operation", verdict.operation},  {"waiting_s", verdict.waiting_s},
          {"sentence", verdict.sentence}};
}

// A row of hdtctl's table: a rank with its latest ended operation and its oldest one under way.
// Operations are ordered from old to new. saturating_sub(): the times are another node's, and foreign.
nlohmann::json row_of(const NodeFacts& node, const RankFacts& rank) {
  nlohmann::json row = {{"rank", rank.rank},       {"node", node.name},   {"pid", rank.pid},
                        {"process", rank.process}, {"calls", rank.calls}, {"departed", rank.departed},
                        {"end", rank.end},         {"in", nullptr},       {"last", nullptr}};
  const auto name = [](const Operation& o) {
    return (o.is_message() ? "message " : "call ") + std::to_string(o.sequence) + " (" + o.text + ")";
  };
  for (const Operation& operation : rank.operations) {
    if (operation.ended_ns != 0) {
      row["last"] = name(operation);
      row["last_ended_s"] = seconds(saturating_sub(node.now_ns, operation.ended_ns));
    } else if (row["in"].is_null()) {
      row["in"] = name(operation);
      row["in_s"] = seconds(saturating_sub(node.now_ns, operation.entered_ns));
      row["moved"] = operation.moved;
      row["others_there"] = operation.started_ns != 0;
    }
  }
  return row;
}

// `known`: the coordinator has answered, so the list of missing ranks is complete.
nlohmann::json to_json(const MakingVerdict& verdict) {
  nlohmann::json json = {
      {"group", verdict.group_id},        {"class", verdict.group_class},      {"ranks", verdict.ranks},
      {"missing", verdict.missing},       {"known", verdict.coordinator_told}, {"sentence", verdict.sentence},
      {"joined", nlohmann::json::array()}};
  for (const MakingRank& rank : verdict.joined)
    json["joined"].push_back({{"rank", rank.rank}, {"node", rank.node}});
  return json;
}

}  // namespace

// The records are turned into operations now, so that only those are kept.
void Diagnosis::remember(GroupFacts ended) {
  complete(ended, TickScale(made_, TickMoment::now()));
  past_ranks_ += ended.local.size();
  past_.push_back(std::move(ended));
  while (past_ranks_ > kPastRanks && past_.size() > 1) {
    past_ranks_ -= past_.front().local.size();
    past_.pop_front();
  }
}

// A session that has ended sees nothing.
Viewer viewer_in(const ControlParts& daemon, uint64_t session) {
  const ClientSession* client = daemon.sessions->find(session);
  return client == nullptr ? Viewer{} : viewer_of(client->credentials.uid);
}

// The facts of this node. daemon_.engines.on_every() collects raw copies, which is quick for the engines; the
// translation is done here.
template <typename Then>
void Diagnosis::local_facts(bool all_operations, const Viewer& viewer, Then then) {
  // The engines' reports; each engine writes its own place.
  struct Parts {
    std::vector<std::vector<GroupFacts>> groups;
    std::vector<std::vector<RailFacts>> rails;
    std::vector<std::map<std::string, std::vector<std::string>>> lacks;
  };
  auto parts = std::make_shared<Parts>();
  parts->groups.resize(daemon_.engines.size());
  parts->rails.resize(daemon_.engines.size());
  parts->lacks.resize(daemon_.engines.size());
  daemon_.engines.on_every(
      [parts](Engine& engine) {
        parts->groups[engine.index()] = engine.reports().groups();
        parts->rails[engine.index()] = engine.reports().rails();
        parts->lacks[engine.index()] = engine.reports().lacks();
      },
      [this, parts, all_operations, viewer, then = std::move(then)] {
        NodeFacts facts;
        facts.name = daemon_.node.name;
        facts.control = daemon_.node.address;
        for (auto& part : parts->groups)
          std::move(part.begin(), part.end(), std::back_inserter(facts.groups));
        for (auto& part : parts->rails) std::move(part.begin(), part.end(), std::back_inserter(facts.rails));
        const TickScale scale(made_, TickMoment::now());
        for (GroupFacts& group : facts.groups) complete(group, scale);
        // An ended group may be in both lists, if it ended between an engine's answer and now.
        for (const GroupFacts& ended : past_) {
          const auto is_it = [&](const GroupFacts& group) { return group.id == ended.id; };
          if (std::none_of(facts.groups.begin(), facts.groups.end(), is_it)) facts.groups.push_back(ended);
        }
        facts.making = daemon_.maker->making();
        // Only engines know which connections are missing.
        for (MakingFacts& making : facts.making) {
          for (auto& lacks : parts->lacks) {
            if (const auto found = lacks.find(making.id); found != lacks.end()) making.lacks = found->second;
          }
        }
        for (MakingFacts& making : daemon_.rendezvous.making()) facts.making.push_back(std::move(making));
        facts.now_ns = now_ns();
        hide_others(facts, viewer);
        if (!all_operations) keep_recent(facts);
        then(std::move(facts));
      });
}

// The other nodes have `budget_ms` to answer. The first of the facts is this node's own.
template <typename Then>
void Diagnosis::all_facts(bool all_operations, const Viewer& viewer, int64_t budget_ms, Then then) {
  // 1. This node's own facts name the other nodes, by the addresses of their daemons.
  // Runs on the control thread when the engines of this node have answered.
  const auto ask_others = [this, all_operations, viewer, budget_ms, then = std::move(then)](NodeFacts own) {
    std::map<std::string, std::string> others;  // name by address
    for (const GroupFacts& group : own.groups) {
      for (const GroupNodeFacts& node : group.nodes) {
        if (node.control != daemon_.node.address && others.size() < kMostNodes)
          others[node.control] = node.name;
      }
    }
    // The coordinator of a group that is being made knows which ranks have joined. Its node has no name
    // yet.
    for (const MakingFacts& making : own.making) {
      if (!making.rendezvous.empty() && making.rendezvous != own.control && others.size() < kMostNodes)
        others.try_emplace(making.rendezvous);
    }
    std::vector<std::string> addresses;
    for (const auto& [address, name] : others) addresses.push_back(address);
    const auto facts = std::make_shared<NodeFacts>(std::move(own));
    // 3. With all answers: a node that did not answer, or whose facts make no sense, is a fact as well.
    const auto collect = [others, then, facts](const std::vector<Answer>& answers) {
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
        const std::string& name = others.at(answer.address);
        // A coordinator's address may be one of this node, or of a node that was asked under its name as
        // well. Then its facts are here already.
        const auto same = [&](const NodeFacts& known) { return known.control == told.value().control; };
        if (name.empty() && (!told.value().answered || std::any_of(all.begin(), all.end(), same))) continue;
        NodeFacts& node = all.emplace_back(told.take());
        if (!name.empty()) node.name = name;
        node.control = answer.address;
        node.offset_ns = answer.offset_ns;
      }
      then(std::move(all));
    };
    // 2. Ask the others. A user's number may differ there, so the groups that it sees here are named,
    //    too.
    Viewer there = viewer;
    if (!viewer.all) there.groups = groups_in(*facts);
    if (there.groups.size() > kMaxViewerGroups) there.groups.resize(kMaxViewerGroups);
    daemon_.inquiries->ask(addresses, all_operations ? "operations" : "facts", there, budget_ms, collect);
  };
  local_facts(all_operations, viewer, ask_others);
}

// Answers at once, or when the engines have answered. The connection may have ended by then; sending to
// it does nothing.
void Diagnosis::on_inquiry(ChannelId channel, const Inquiry& inquiry) {
  // JSON may hold any bytes from processes; what is no UTF-8 is replaced.
  const auto answer = [this, channel, number = inquiry.number](const nlohmann::json& json) {
    const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    daemon_.network->send(channel, Reply{number, Code::kSuccess, now_ns(), text});
  };
  if (inquiry.what == "clock") return answer(nlohmann::json::object());
  if (inquiry.what == "description") return answer(daemon_.doctor->description());
  if (inquiry.what.starts_with(Doctor::kPathsQuestion)) return daemon_.doctor->answer_paths(channel, inquiry);
  if (inquiry.what == "facts" || inquiry.what == "operations") {
    return local_facts(inquiry.what == "operations", inquiry.viewer,
                       [this, channel, answer](NodeFacts facts) {
                         // Without a cluster key the peer may be any process and vouch for any user. It
                         // gets only groups that it is a member of.
                         if (daemon_.trust->cluster_key().empty())
                           hide_from_node(facts, daemon_.network->peer_of(channel));
                         answer(to_text(facts));
                       });
  }
  daemon_.network->send(
      channel, Reply{inquiry.number, Code::kInvalidArgument, now_ns(),
                     "node " + daemon_.node.name + " does not know the question '" + inquiry.what + "'"});
}

// Groups that have ended without a failure are left out unless they are named, since nobody asks why they
// do not go on.
void Diagnosis::answer_why(uint64_t session, const std::string& name) {
  all_facts(
      false, viewer_in(daemon_, session), kAskMs, [this, session, name](const std::vector<NodeFacts>& facts) {
        // 1. Which groups are meant. A group that ended without a failure is meant only if it is named.
        std::set<std::string> meant, concerned;  // ids of groups, addresses of their nodes' daemons
        for (const NodeFacts& node : facts) {
          for (const GroupFacts& group : node.groups) {
            const bool over = group.ended && group.code == 0;
            if (!is_meant(group.id, group.group_class, name) || (over && name.empty())) continue;
            meant.insert(group.id);
            for (const GroupNodeFacts& place : group.nodes) concerned.insert(place.control);
          }
        }
        // 2. Groups that are being made. A node that has made its part reports the group as running already.
        std::vector<MakingVerdict> making = judge_making(facts);
        std::erase_if(making, [&](const MakingVerdict& group) {
          return meant.contains(group.group_id) || !is_meant(group.group_id, group.group_class, name);
        });
        // The same answer for a group that does not exist and for one that the viewer may not see.
        if (meant.empty() && making.empty() && !name.empty()) {
          daemon_.sessions->send(
              session, ipc::encode_text(ipc::Kind::kAnswerIs, Code::kInvalidUsage,
                                        "node " + daemon_.node.name + " has and had no group '" + name +
                                            "' that you may see; hdtctl status lists those"));
          return;
        }
        // 3. The answer: verdicts, and for each a table of its ranks and of what its nodes have exchanged.
        nlohmann::json answer = {{"node", daemon_.node.name},
                                 {"silent", nlohmann::json::array()},
                                 {"verdicts", nlohmann::json::array()}};
        answer["hidden"] = facts.front().hidden;
        for (const NodeFacts& node : facts) {
          if (!node.answered && concerned.contains(node.control))
            answer["silent"].push_back({{"node", node.name}, {"why", node.silence}});
        }
        answer["making"] = nlohmann::json::array();
        for (const MakingVerdict& group : making) answer["making"].push_back(to_json(group));
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
        send_answer(daemon_, session, answer);
      });
}

// All facts as they are; hdtctl makes the trace of them.
void Diagnosis::answer_trace(uint64_t session) {
  all_facts(true, viewer_in(daemon_, session), kAskMs, [this, session](const std::vector<NodeFacts>& facts) {
    nlohmann::json answer = {
        {"node", daemon_.node.name}, {"nodes", nlohmann::json::array()}, {"hidden", facts.front().hidden}};
    for (const NodeFacts& node : facts) answer["nodes"].push_back(to_text(node));
    send_answer(daemon_, session, answer);
  });
}

// The group fails with the verdict. Other ranks of it whose deadline passes meanwhile are not diagnosed
// again: they learn the failure from the group.
void Diagnosis::on_deadline(uint64_t session, const Seat& seat, const ipc::GroupNotice& notice) {
  if (!in_diagnosis_.insert(seat.group).second) return;
  const auto fail = [this, session, seat, notice](const std::vector<NodeFacts>& facts) {
    in_diagnosis_.erase(seat.group);
    std::string text = notice.text;
    // The text is the rank's own, followed by the verdicts about the group. The failure names the first
    // rank of the last verdict that names any.
    int32_t rank = -1;
    for (const Verdict& verdict : judge(facts)) {
      if (verdict.group_id != id_text(seat.group)) continue;
      text += "; " + verdict.sentence;
      if (!verdict.ranks.empty()) rank = static_cast<int32_t>(verdict.ranks.front());
    }
    daemon_.engines.post(seat.engine, [session, handle = notice.handle, rank, text](Engine& engine) {
      engine.sessions().fail(session, handle, Code::kTimeout, rank, text);
    });
  };
  all_facts(false, viewer_in(daemon_, session), kDeadlineAskMs, fail);
}

}  // namespace hdt::daemon
