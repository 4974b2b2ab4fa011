// answers.cc: see answers.h.
#include "daemon/control/answers.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "daemon/control/class_changes.h"
#include "daemon/control/diagnosis.h"
#include "daemon/control/doctor.h"
#include "daemon/diagnosis/own_use.h"
#include "daemon/protocol/version.h"

namespace hdt::daemon {

// The JSON travels in shared memory, since a status can be longer than a message of a socket. The process
// maps it and owns it from then on.
void send_json(ClientSessions& sessions, uint64_t session, std::span<const std::byte> answer,
               const nlohmann::json& json) {
  // Names of classes come from processes and may be any bytes; those that are no UTF-8 are replaced, or
  // dump() would throw.
  const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  auto memory = SharedMemory::create("hdt-answer", text.size() + 1);
  if (!memory.is_ok()) return sessions.refuse(session, memory.status().code(), memory.status().message());
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(memory.value().data()));
  const std::array<int, 1> fds = {memory.value().fd()};
  sessions.send(session, answer, fds);
}

// For questions whose answer has no other fields.
void send_answer(const ControlParts& daemon, uint64_t session, const nlohmann::json& json) {
  send_json(*daemon.sessions, session, ipc::encode_text(ipc::Kind::kAnswerIs, Code::kSuccess, ""), json);
}

// 1. On each engine: its groups and links that the viewer may see. 2. Here: sessions, the parts put
//    together, limits, and what the daemon itself uses.
void Answers::status(uint64_t session) {
  auto parts = std::make_shared<std::vector<nlohmann::json>>(daemon_.engines.size());
  const Viewer viewer = viewer_in(daemon_, session);
  daemon_.engines.on_every(
      [parts, viewer](Engine& engine) { (*parts)[engine.index()] = engine.reports().status(viewer); },
      [this, parts, viewer, session] {
        nlohmann::json status;
        status["node"] = daemon_.node.name;
        status["software"] = kSoftware;
        status["pid"] = ::getpid();
        status["embedded"] = daemon_.host_pid != 0;
        status["socket"] = daemon_.config.node.socket;
        status["address"] = daemon_.network->address();
        status["uptime_s"] = static_cast<double>(now_ns() - daemon_.started_ns) / kNsPerSecond;
        status["sessions"] = nlohmann::json::array();
        // Sessions that the viewer may not see are counted, so that it knows that there are more.
        size_t others = 0;
        for (const auto& [number, client] : daemon_.sessions->all()) {
          if (!viewer.sees({client.credentials.uid})) {
            ++others;
            continue;
          }
          status["sessions"].push_back({{"pid", client.credentials.pid},
                                        {"uid", client.credentials.uid},
                                        {"ranks", client.seats.size()}});
        }
        status["groups"] = nlohmann::json::array();
        status["peers"] = nlohmann::json::array();
        size_t other_groups = 0;
        size_t other_peers = 0;
        // Each part has the form that EngineReports::status() describes.
        for (const auto& part : *parts) {
          other_groups += part["other_groups"].get<size_t>();
          other_peers += part["other_peers"].get<size_t>();
          for (const auto& group : part["groups"]) status["groups"].push_back(group);
          for (const auto& peer : part["peers"]) status["peers"].push_back(peer);
        }
        status["others"] = {{"sessions", others}, {"groups", other_groups}, {"peers", other_peers}};
        // The limits depend on the asking process's user; without the session there is nobody to answer.
        const ClientSession* asker = daemon_.sessions->find(session);
        if (asker == nullptr) return;
        const uid_t uid = asker->credentials.uid;
        status["limits"] =
            daemon_.limits->status(daemon_.limits->is_exempt(uid) ? std::nullopt : std::optional(uid));
        status["daemon"] = own_use(status["groups"].size() + other_groups);
        send_json(*daemon_.sessions, session, ipc::encode_empty(ipc::Kind::kStatusIs), status);
      });
}

namespace {

// "allreduce, reduce, ...": the names of an enumeration with `count` values from 0 on.
// For the errors of call_of(): whoever mistypes a name sees the ones that exist.
template <typename Enum>
std::string names(int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (text.empty() ? "" : ", ") + std::string(name_of(static_cast<Enum>(i)));
  return text;
}

// The call that the question is about. kInvalidArgument: an operation or type of this name does not
// exist.
Result<ipc::Call> call_of(const ipc::ExplainRequest& request) {
  // The count is rounded down to whole elements. Whether the root is a rank of the group is checked by
  // the engine, which knows the group.
  const auto what = collectives::parse_collective(request.what);
  if (!what) {
    return Status(Code::kInvalidArgument, "operation '" + request.what + "' given; expected one of " +
                                              names<collectives::Collective>(collectives::kCollectiveCount));
  }
  const auto type = collectives::parse_data_type(request.type);
  if (!type) {
    return Status(Code::kInvalidArgument, "type '" + request.type + "' given; expected one of " +
                                              names<collectives::DataType>(collectives::kDataTypeCount));
  }
  ipc::Call call;
  call.what = *what;
  call.type = *type;
  call.count = request.bytes / collectives::type_size(*type);
  call.root = request.root;
  return call;
}

}  // namespace

// An error of the question is answered with a text. Otherwise each engine explains the call for its groups
// that the name means, and there must be one such group in all.
void Answers::explain(uint64_t session, const ipc::ExplainRequest& request) {
  using ipc::Kind;
  // Also closes the question (ClientSessions::send()).
  const auto refuse = [this, session](Code code, const std::string& why) {
    daemon_.sessions->send(session, ipc::encode_text(Kind::kExplanationIs, code, why));
  };
  // A question that makes no sense never reaches an engine.
  const auto call = call_of(request);
  if (!call.is_ok()) return refuse(call.status().code(), call.status().message());
  auto parts = std::make_shared<std::vector<nlohmann::json>>(daemon_.engines.size());
  daemon_.engines.on_every(
      [parts, viewer = viewer_in(daemon_, session), name = request.group, call = call.value()](
          Engine& engine) { (*parts)[engine.index()] = engine.reports().explain(name, call, viewer); },
      [this, parts, session, refuse, name = request.group] {
        // Each engine has looked among its groups. A name may be that of a class, and so of
        // several groups; then the asker must choose one.
        nlohmann::json found = nlohmann::json::array();
        for (const auto& part : *parts) found.insert(found.end(), part.begin(), part.end());
        if (found.empty()) {
          return refuse(Code::kInvalidUsage, "node " + daemon_.node.name + " has no group '" + name +
                                                 "' that you may see; hdtctl status lists those");
        }
        if (found.size() > 1) {
          std::string ids;
          for (const auto& group : found)
            ids += (ids.empty() ? "" : ", ") + group["group"].get<std::string>();
          return refuse(Code::kInvalidUsage,
                        "several groups are of class '" + name + "'; name one by its id: " + ids);
        }
        if (found[0].contains("wrong"))
          return refuse(Code::kInvalidArgument, found[0]["wrong"].get<std::string>());
        send_json(*daemon_.sessions, session, ipc::encode_text(Kind::kExplanationIs, Code::kSuccess, ""),
                  found[0]);
      });
}

// Hands a question on by its kind (ipc::Question). ClientSessions reads nothing else of the session
// until this is answered.
void Answers::ask(uint64_t session, const ipc::Question& question) {
  // The plan was made at start or by the latest class change; nothing is asked of engines.
  if (question.what == "backends") {
    nlohmann::json answer = {{"node", daemon_.node.name},
                             {"folders", daemon_.plan.folders()},
                             {"backends", daemon_.plan.report()}};
    return send_answer(daemon_, session, answer);
  }
  if (question.what == "link") return link(session, question.about);
  if (question.what == "class") return daemon_.changes->answer_set(session, question.about);
  if (question.what == "why") return daemon_.diagnosis->answer_why(session, question.about);
  if (question.what == "trace") return daemon_.diagnosis->answer_trace(session);
  if (question.what == "doctor") return daemon_.doctor->answer(session, question.about);
  daemon_.sessions->send(session,
                         ipc::encode_text(ipc::Kind::kAnswerIs, Code::kInvalidArgument,
                                          "the daemon does not know the question '" + question.what + "'"));
}

// Links belong to engines: each engine has its own to the same node, so a class may appear once per
// engine.
void Answers::link(uint64_t session, const std::string& node) {
  auto parts = std::make_shared<std::vector<nlohmann::json>>(daemon_.engines.size());
  const Viewer viewer = viewer_in(daemon_, session);
  daemon_.engines.on_every(
      [parts, node, viewer](Engine& engine) {
        (*parts)[engine.index()] = engine.reports().explain_link(node, viewer);
      },
      [this, parts, session, node] {
        nlohmann::json answer = {
            {"node", daemon_.node.name}, {"to", node}, {"classes", nlohmann::json::array()}};
        for (size_t engine = 0; engine < parts->size(); ++engine) {
          for (auto& choice : (*parts)[engine]) {
            choice["engine"] = engine;
            answer["classes"].push_back(choice);
          }
        }
        if (answer["classes"].empty()) {
          daemon_.sessions->send(
              session,
              ipc::encode_text(ipc::Kind::kAnswerIs, Code::kInvalidUsage,
                               "node " + daemon_.node.name + " has had no group with a node '" + node +
                                   "' that you may see; links are made when a group needs them"));
          return;
        }
        send_answer(daemon_, session, answer);
      });
}

// Reads /proc, which takes a while with many descriptors: asked for by people only.
nlohmann::json Answers::own_use(size_t groups) const {
  // The keys are those that hdtctl and the tests read.
  const OwnUse use = own_use_now();
  return {{"descriptors", use.descriptors},
          {"descriptors_allowed", use.descriptors_allowed},
          {"ports_listening", use.listening},
          {"ports_connected", use.connected},
          {"threads", use.threads},
          {"memory_bytes", use.memory_bytes},
          {"shared_memories", use.shared_memories},
          {"shared_bytes", use.shared_bytes},
          {"sessions", daemon_.sessions->all().size()},
          {"groups", groups}};
}

}  // namespace hdt::daemon
