#include "tools/hdtctl/trace_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "base/saturate.h"

namespace hdt::ctl {

namespace {

using nlohmann::json;

// As daemons tell operations: daemon/protocol/facts.cc.
enum Field { kKind, kText, kSequence, kBytes, kPeer, kMoved, kEntered, kStarted, kEnded, kCode };

double us(int64_t ns) { return static_cast<double>(ns) / 1000; }

class Trace {
 public:
  void add_node(const json& node, int number) {
    name("process_name", number, 0, "node " + node.at("name").get<std::string>());
    offset_ns_ = node.at("offset_ns").get<int64_t>();
    // Of the node's own clock; a node that does not answer has no operations.
    now_ns_ = node.at("now_ns").get<int64_t>();
    for (const auto& group : node.at("groups")) {
      for (const auto& rank : group.at("local")) {
        add_rank(rank, group, number);
      }
    }
  }
  json take() { return {{"traceEvents", std::move(events_)}, {"displayTimeUnit", "ns"}}; }

 private:
  void name(const char* what, int process, int thread, const std::string& text) {
    events_.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", text}}}});
  }

  void add_rank(const json& rank, const json& group, int process) {
    std::vector<json> operations = rank.at("operations").get<std::vector<json>>();
    std::stable_sort(operations.begin(), operations.end(), [](const json& a, const json& b) {
      return a.at(kEntered).get<int64_t>() < b.at(kEntered).get<int64_t>();
    });
    std::vector<std::pair<int, int64_t>> lanes;  // thread, when its last operation ended
    for (const json& operation : operations) {
      const auto entered = operation.at(kEntered).get<int64_t>();
      const bool over = operation.at(kEnded).get<int64_t>() != 0;
      const int64_t ended = over ? operation.at(kEnded).get<int64_t>() : now_ns_;
      auto lane =
          std::find_if(lanes.begin(), lanes.end(), [&](const auto& l) { return l.second <= entered; });
      if (lane == lanes.end()) {
        lane = lanes.emplace(lanes.end(), ++last_thread_, 0);
        name("thread_name", process, lane->first,
             fmt::format("rank {} of {}{}", rank.at("rank").get<uint32_t>(),
                         group.at("name").get<std::string>(),
                         lanes.size() == 1 ? "" : fmt::format(", lane {}", lanes.size())));
      }
      lane->second = ended;
      add_operation(operation, group, process, lane->first, over, ended);
    }
  }

  void add_operation(const json& operation, const json& group, int process, int thread, bool over,
                     int64_t ended) {
    const auto entered = operation.at(kEntered).get<int64_t>();
    const auto started = operation.at(kStarted).get<int64_t>();
    json args = {
        {"call", operation.at(kText)}, {"number", operation.at(kSequence)}, {"bytes", operation.at(kBytes)}};
    if (operation.at(kPeer).get<int64_t>() >= 0) args["moved"] = operation.at(kMoved);
    if (!over) args["under_way"] = true;
    if (operation.at(kCode).get<int>() != 0) args["code"] = operation.at(kCode);
    add_slice(operation.at(kKind), group.at("group_class"), process, thread, entered, ended, std::move(args));
    const int64_t there = started != 0 ? std::min(started, ended) : ended;
    if (there > entered)
      add_slice("wait for others", "wait", process, thread, entered, there, json::object());
  }

  void add_slice(const json& what, const json& category, int process, int thread, int64_t from, int64_t to,
                 json args) {
    events_.push_back({{"ph", "X"},
                       {"name", what},
                       {"cat", category},
                       {"pid", process},
                       {"tid", thread},
                       {"ts", us(saturating_sub(from, offset_ns_))},
                       {"dur", us(std::max<int64_t>(0, saturating_sub(to, from)))},
                       {"args", std::move(args)}});
  }

  json events_ = json::array();
  int last_thread_ = 0;
  int64_t offset_ns_ = 0;
  int64_t now_ns_ = 0;
};

}  // namespace

json trace_of(const json& answer) {
  Trace trace;
  int number = 0;
  for (const auto& node : answer.at("nodes")) trace.add_node(node, ++number);
  return trace.take();
}

}  // namespace hdt::ctl
