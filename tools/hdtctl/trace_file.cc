// trace_file.cc: turns operations into slices. Each node reports times of its own clock together with
// the offset to the clock of the node that was asked; the offset is subtracted from every time.
#include "tools/hdtctl/trace_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/saturate.h"
#include "tools/hdtctl/json_fields.h"

namespace hdt::ctl {

namespace {

using nlohmann::json;

// The fields of an operation, by position, as daemon/protocol/facts.cc writes them.
enum Field { kKind, kText, kSequence, kBytes, kPeer, kMoved, kEntered, kStarted, kEnded, kCode };

// The format wants microseconds.
double us(int64_t ns) { return static_cast<double>(ns) / 1000; }

class Trace {
 public:
  // All ranks of one node, as process `number`.
  void add_node(const json& node, int number) {
    name("process_name", number, 0, "node " + text_at(node, "name"));
    offset_ns_ = whole_at(node, "offset_ns");
    // By the node's own clock: the end of operations that are still under way. A node that has not
    // answered has no operations.
    now_ns_ = whole_at(node, "now_ns");
    for (const auto& group : list_at(node, "groups")) {
      for (const auto& rank : list_at(group, "local")) {
        add_rank(rank, group, number);
      }
    }
  }
  json take() { return {{"traceEvents", std::move(events_)}, {"displayTimeUnit", "ns"}}; }

 private:
  // A metadata event: the name of a process or a thread.
  void name(const char* what, int process, int thread, const std::string& text) {
    events_.push_back(
        {{"ph", "M"}, {"name", what}, {"pid", process}, {"tid", thread}, {"args", {{"name", text}}}});
  }

  // Gives each operation to the first lane that is free when it begins. Ranks of all groups of a node
  // are numbered through, so that no two threads of the trace have one number.
  void add_rank(const json& rank, const json& group, int process) {
    std::vector<json> operations = list_at(rank, "operations");
    std::stable_sort(operations.begin(), operations.end(), [](const json& a, const json& b) {
      return whole(a.at(kEntered)) < whole(b.at(kEntered));
    });
    std::vector<std::pair<int, int64_t>> lanes;  // thread, when its last operation ended
    for (const json& operation : operations) {
      const auto entered = whole(operation.at(kEntered));
      // An operation without an end is under way.
      const bool over = whole(operation.at(kEnded)) != 0;
      const int64_t ended = over ? whole(operation.at(kEnded)) : now_ns_;
      auto lane =
          std::find_if(lanes.begin(), lanes.end(), [&](const auto& l) { return l.second <= entered; });
      if (lane == lanes.end()) {
        lane = lanes.emplace(lanes.end(), ++last_thread_, 0);
        name("thread_name", process, lane->first,
             fmt::format("rank {} of {}{}", whole_at(rank, "rank"), text_at(group, "name"),
                         lanes.size() == 1 ? "" : fmt::format(", lane {}", lanes.size())));
      }
      lane->second = ended;
      add_operation(operation, group, process, lane->first, over, ended);
    }
  }

  // The slice of the whole operation, and below it a slice for the time until all others had come.
  void add_operation(const json& operation, const json& group, int process, int thread, bool over,
                     int64_t ended) {
    const auto entered = whole(operation.at(kEntered));
    const auto started = whole(operation.at(kStarted));
    json args = {
        {"call", operation.at(kText)}, {"number", operation.at(kSequence)}, {"bytes", operation.at(kBytes)}};
    if (whole(operation.at(kPeer)) >= 0) args["moved"] = operation.at(kMoved);
    if (!over) args["under_way"] = true;
    if (whole(operation.at(kCode)) != 0) args["code"] = operation.at(kCode);
    add_slice(operation.at(kKind), group.at("group_class"), process, thread, entered, ended, std::move(args));
    // Until all others had come, the operation could not begin.
    const int64_t there = started != 0 ? std::min(started, ended) : ended;
    if (there > entered)
      add_slice("wait for others", "wait", process, thread, entered, there, json::object());
  }

  // Times come from another process, so differences are saturated instead of overflowing.
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
  for (const auto& node : list_at(answer, "nodes")) trace.add_node(node, ++number);
  return trace.take();
}

}  // namespace hdt::ctl
