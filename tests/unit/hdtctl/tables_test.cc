// tables_test.cc: answers of daemons of other releases: each field is taken away, or is something else. A
// table then is a text or a json::exception that hdtctl reports; never the end of the process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tools/hdtctl/backends_table.h"
#include "tools/hdtctl/class_table.h"
#include "tools/hdtctl/doctor.h"
#include "tools/hdtctl/explain_table.h"
#include "tools/hdtctl/link_table.h"
#include "tools/hdtctl/status_table.h"
#include "tools/hdtctl/trace_file.h"
#include "tools/hdtctl/why_table.h"

namespace hdt::ctl {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json list(std::vector<json> items) { return items; }

struct Case {
  const char* name;
  std::string (*text)(const json&);
  json answer;
  // A part of the text, and a field that the text needs.
  std::string part;
  std::string needed;
};

std::string trace_text(const json& answer) { return trace_of(answer).dump(); }

std::string doctor_text(const json& answer) {
  return doctor_table(examine(answer, tried_paths(answer), Machine()));
}

json status_answer() {
  const json rail = {
      {"backend", "tcp"}, {"nic", "eth0"},   {"local", "10.0.0.1:1"},       {"remote", "10.0.0.2:2"},
      {"state", "up"},    {"losses", 1U},    {"last_error", "reset"},       {"bytes_resent", 5U},
      {"bytes_out", 10U}, {"bytes_in", 20U}, {"mean_bytes_per_s_out", 1.5}, {"mean_bytes_per_s_in", 2.5}};
  const json group = {{"id", "1a2b3c4d"},
                      {"class", "dp"},
                      {"ranks", 2U},
                      {"users", list({1000U})},
                      {"state", "running"},
                      {"failure", "none yet"},
                      {"stays_for", "a moment"},
                      {"nodes", list({{{"name", "n0"}, {"ranks", list({0U, 1U})}}})},
                      {"local", list({{{"rank", 0U},
                                       {"pid", 7},
                                       {"calls", 3U},
                                       {"buffer_bytes", 400U},
                                       {"copied_bytes", 100U},
                                       {"samples", 8U},
                                       {"departed", true}}})}};
  return {
      {"node", "n0"},
      {"software", "hdtcommd 1"},
      {"embedded", true},
      {"pid", 5},
      {"uptime_s", 1.5},
      {"socket", "/run/hdt.sock"},
      {"address", "10.0.0.1:18520"},
      {"daemon", {{"descriptors", 9U}, {"memory_bytes", 4096U}}},
      {"others", {{"sessions", 1U}, {"groups", 2U}, {"peers", 3U}}},
      {"sessions", list({{{"pid", 7}, {"uid", 1000U}, {"ranks", 1U}}})},
      {"limits",
       {{"each", {{"groups", 10}}}, {"users", list({{{"uid", 1000U}, {"limited", true}, {"groups", 2}}})}}},
      {"groups", list({group})},
      {"peers", list({{{"node", "n1"},
                       {"backend", "tcp"},
                       {"state", "up"},
                       {"class", "dp"},
                       {"rails", list({rail})}}})}};
}

json why_answer() {
  const json row = {{"rank", 1U},  {"node", "n0"},          {"pid", 7},       {"process", "R"},
                    {"calls", 3U}, {"departed", false},     {"end", ""},      {"in", "send"},
                    {"in_s", 2.5}, {"others_there", false}, {"last", nullptr}};
  const json peer = {{"node", "n0"},     {"peer", "n1"},    {"linked", true},
                     {"chunks_out", 1U}, {"chunks_in", 2U}, {"quiet_s", 0.5}};
  return {{"node", "n0"},
          {"hidden", 1U},
          {"making", list({{{"sentence", "rank 3 has not joined"}}})},
          {"silent", list({{{"node", "n2"}, {"why", "no answer"}}})},
          {"verdicts", list({{{"sentence", "rank 1 is stopped"},
                              {"group", "1a2b3c4d"},
                              {"class", "dp"},
                              {"table", list({row})},
                              {"peers", list({peer})}}})}};
}

std::vector<Case> cases() {
  const json nic = {{"name", "mlx5_0"}, {"address", "10.0.0.1"}, {"bits_per_s", 1e10}, {"interface", "ib0"},
                    {"up", true},       {"selected", false}};
  const json rail = {
      {"nic", "eth0"}, {"address", "10.0.0.1"}, {"their_nic", "eth1"}, {"their_address", "10.0.0.2"}};
  const json operation = list({"send", "send of 8", 0, 32, 1, 16, 1000, 2000, 3000, 4});
  const json trial = {{"from_nic", "eth0"}, {"from", "10.0.0.1"}, {"to_nic", "eth0"}, {"to", "10.0.0.2:1"},
                      {"error", ""},        {"narrowed", ""},     {"largest", 9000U}};
  const json own = {
      {"node", "n0"},
      {"software", "hdtcommd 1"},
      {"nics", list({{{"name", "eth0"}, {"address", "10.0.0.1"}, {"mtu", 9000U}, {"up", false}}})},
      {"memory_free", 5U},
      {"ports", list({1U, 9U})},
      {"own_host_only", false},
      {"cluster_key", false},
      {"allow_groups", list({"hdt"})}};
  return {
      {"backends",
       backends_table,
       {{"node", "n0"},
        {"folders", list({"/usr/lib/hdt"})},
        {"backends", list({{{"name", "rdma"},
                            {"library", "libhdt_rdma.so"},
                            {"problem", "no device"},
                            {"classes", list({"dp"})},
                            {"nics", list({nic})}}})}},
       "10 Gbit/s on ib0 left out",
       "selected"},
      {"class",
       class_table,
       {{"class", "dp"},
        {"backends", list({"tcp", "rdma"})},
        {"nics", list({"eth0"})},
        {"algorithm", "auto"},
        {"priority", "latency"},
        {"weight", 3}},
       "weight 3",
       "weight"},
      {"explain",
       explain_table,
       {{"call", "allreduce of 8"},
        {"group", "1a2b3c4d"},
        {"class", "dp"},
        {"ranks", 4U},
        {"nodes", 2U},
        {"chunks", 2U},
        {"chunk_bytes", 4096.0},
        {"configured", "auto"},
        {"picked", "ring"},
        {"why", "it is the fastest"},
        {"hand_over_s", 1e-6},
        {"owned", list({{{"node", "n0"},
                         {"part", 0.25},
                         {"link_bytes_s", 1.25e8},
                         {"combine_bytes_s", 2.5e8},
                         {"local_bytes_s", 5e8}}})},
        {"equal_parts_s", 2e-3},
        {"equal_parts_wait_for", {{"node", "n1"}, {"of_it", "memory"}}},
        {"candidates", list({{{"algorithm", "ring"}, {"predicted_s", 1e-3}},
                             {{"algorithm", "tree"}, {"left_out", "too few nodes"}}})}},
       " 25.0 %, links 119.2 MiB/s, combines 238.4 MiB/s, its ranks 476.8 MiB/s\n"
       "with equal parts: 2.000 ms, as all wait for the memory of n1",
       "picked"},
      {"link",
       link_table,
       {{"node", "n0"},
        {"to", "n1"},
        {"classes",
         list({{{"class", "dp"},
                {"engine", 0U},
                {"chosen", "tcp"},
                {"dials", true},
                {"candidates", list({{{"backend", "tcp"}, {"result", "chosen"}, {"rails", list({rail})}}})},
                {"rails_up", list({{{"local", "10.0.0.1:1"}, {"remote", "10.0.0.2:2"}}})}}})}},
       "node n0 dials",
       "rails_up"},
      {"status", status_table, status_answer(), "groups 2/10", "each"},
      {"why", why_table, why_answer(), "in send for 2.5 s, waits for others", "verdicts"},
      {"trace",
       trace_text,
       {{"nodes",
         list({{{"name", "n0"},
                {"offset_ns", 5},
                {"now_ns", 9000},
                {"groups",
                 list({{{"name", "group aa"},
                        {"group_class", "dp"},
                        {"local", list({{{"rank", 3U}, {"operations", list({operation})}}})}}})}}})}},
       "\"thread_name\"",
       "operations"},
      // All fields may be missing (doctor.h).
      {"doctor",
       doctor_text,
       {{"own", own},
        {"peers", list({{{"address", "10.0.0.2:1"},
                         {"description", own},
                         {"there", list({trial})},
                         {"back", list({trial})}}})}},
       "NIC eth0 (10.0.0.1) is down",
       ""},
  };
}

// The places of all values below `at`, each as a pointer from the root.
void places(const json& value, const json::json_pointer& at, std::vector<json::json_pointer>& all) {
  if (!at.empty()) all.push_back(at);
  if (value.is_object()) {
    for (const auto& [key, part] : value.items()) places(part, at / key, all);
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) places(value[i], at / i, all);
  }
}

// False: the answer was refused.
bool shown(const Case& tried, const json& answer, const std::string& what) {
  SCOPED_TRACE(std::string(tried.name) + ": " + what);
  try {
    EXPECT_FALSE(tried.text(answer).empty());
    return true;
  } catch (const json::exception& error) {
    EXPECT_NE(std::string(error.what()), "");
    return false;
  }
}

TEST(Tables, ShowAWholeAnswer) {
  for (const Case& tried : cases())
    EXPECT_THAT(tried.text(tried.answer), HasSubstr(tried.part)) << tried.name;
}

TEST(Tables, RefuseAnAnswerWithoutAFieldThatTheyNeedAndNameIt) {
  size_t refused = 0;
  for (const Case& tried : cases()) {
    std::vector<json::json_pointer> all;
    places(tried.answer, json::json_pointer(), all);
    for (const json::json_pointer& place : all) {
      const bool is_needed = !tried.needed.empty() && place.back() == tried.needed;
      json without = tried.answer;
      without.at(place.parent_pointer()).is_array()
          ? without.at(place.parent_pointer()).erase(std::stoul(place.back()))
          : static_cast<void>(without.at(place.parent_pointer()).erase(place.back()));
      if (!is_needed) {
        shown(tried, without, "without " + place.to_string());
        continue;
      }
      ++refused;
      try {
        ADD_FAILURE() << tried.name << " without " << place << ": " << tried.text(without);
      } catch (const json::exception& error) {
        EXPECT_THAT(error.what(), HasSubstr("'" + tried.needed + "'")) << tried.name;
      }
    }
  }
  EXPECT_EQ(refused, cases().size() - 1) << "all but doctor need theirs";
}

TEST(Tables, TakeNothingForWhatItIsNot) {
  const json others[] = {nullptr,           true,           -1,
                         UINT64_MAX,        1e300,          "text",
                         json::array(),     json::object(), list({1, "text"}),
                         {{"key", "value"}}};
  for (const Case& tried : cases()) {
    std::vector<json::json_pointer> all;
    places(tried.answer, json::json_pointer(), all);
    size_t refused = 0;
    for (const json::json_pointer& place : all) {
      for (const json& other : others) {
        json changed = tried.answer;
        changed.at(place) = other;
        refused += shown(tried, changed, place.to_string() + " is " + other.dump()) ? 0 : 1;
      }
    }
    for (const json& other : others) shown(tried, other, "all is " + other.dump());
    EXPECT_EQ(refused == 0, tried.needed.empty()) << tried.name;
  }
}

}  // namespace
}  // namespace hdt::ctl
