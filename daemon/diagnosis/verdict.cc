// verdict.cc: see verdict.h. Judge looks at one group. Ranks that wait for each other in a
// circle concern several groups at once; they are found once before (circle() in group_view.h).
#include "daemon/diagnosis/verdict.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "base/clock.h"
#include "base/join.h"
#include "base/saturate.h"
#include "daemon/diagnosis/group_view.h"
#include "daemon/diagnosis/link_verdict.h"

namespace hdt::daemon {

using ipc::Operation;

// The names are part of the JSON of `hdtctl why` and begin its sentences.
const char* name_of(Cause cause) {
  switch (cause) {
    case Cause::kDeadRank:
      return "dead rank";
    case Cause::kUnreachableDaemon:
      return "unreachable daemon";
    case Cause::kDaemonEnded:
      return "daemon ended";
    case Cause::kDepartedEarly:
      return "rank departed early";
    case Cause::kAborted:
      return "aborted";
    case Cause::kMismatchedCall:
      return "mismatched call";
    case Cause::kWrongOrder:
      return "wrong order";
    case Cause::kStoppedProcess:
      return "stopped process";
    case Cause::kLateRank:
      return "late rank";
    case Cause::kUnmatchedMessage:
      return "unmatched message";
    case Cause::kLinkDown:
      return "link down";
    case Cause::kRailDown:
      return "rail down";
    case Cause::kSlowRail:
      return "slow rail";
    case Cause::kDeadline:
      return "deadline passed";
    case Cause::kFailed:
      return "failed";
    case Cause::kStuck:
      return "stuck";
    case Cause::kUnderWay:
      return "under way";
    case Cause::kNothingToDo:
      return "nothing to do";
  }
  return "unknown";
}

// The order of the enumeration makes this comparison right: everything before kUnderWay keeps a job from
// making progress.
bool is_trouble(Cause cause) { return cause < Cause::kUnderWay; }

namespace {

// Below so many seconds without progress the verdict is "under way", not "stuck".
constexpr double kStuckSeconds = 1;

// The state letter of /proc/PID/stat in words (proc(5)).
const char* state_words(const std::string& process) {
  switch (process.empty() ? '\0' : process[0]) {
    case '\0':
      return "ended";
    case '?':
      return "state not known";
    case 'R':
      return "running";
    case 'D':
      return "waiting for a disk or a network file system";
    case 'T':
      return "stopped by a signal";
    case 't':
      return "stopped by a debugger";
    case 'Z':
      return "dead, not yet waited for";
    default:
      return "sleeping";
  }
}

// The judgement of one group under way. run() is called once; the other functions each look for one cause
// and make the sentence.
class Judge {
 public:
  // `now_ns`: the asking node's clock. The view must live as long as the Judge.
  Judge(const std::string& id, const GroupView& group, int64_t now_ns) : group_(group), now_ns_(now_ns) {
    verdict_.group_id = id;
    verdict_.group = group.facts->name;
    verdict_.group_class = group.facts->group_class;
  }

  // `wrong_order`: the circle, if this group is part of one; else empty.
  Verdict run(const std::vector<Wait>& wrong_order) {
    // The order is that of verdict.h's causes where both could be true: 1. the failure says why; 2. a
    // process or a daemon has ended; 3. nothing is under way; 4. a circle, a mismatch; 5. a rank that is
    // stopped or late; 6. a message without its counterpart; 7. all are in it: links.
    if (group_.facts->code != 0) return failed();
    // Nearly every sentence names the operation under way.
    find_current();
    // The end of a process is certain, whatever else the facts show.
    if (const auto rank = first([](const MemberView& m) { return m.dead(); })) {
      return say(Cause::kDeadRank, {*rank}, fmt::format("{} has ended{}", who(*rank), waiting()));
    }
    // Without the facts of a node the rest would be guessed. A group that has ended here needs nobody's
    // answer.
    if (!group_.silent.empty() && !group_.facts->ended) return silent_node();
    if (current_ == nullptr && !messages_) {
      return say(Cause::kNothingToDo, {},
                 fmt::format("no operation of {} is under way{}", verdict_.group,
                             group_.facts->ended ? "; its ranks here have departed" : ""));
    }
    if (!wrong_order.empty()) return ordered_wrongly(wrong_order);
    if (auto mismatch = mismatched()) return *mismatch;
    // A stopped rank looks like a late one, so it is looked for before.
    if (const auto rank = first([](const MemberView& m) { return m.stopped(); })) {
      return say(Cause::kStoppedProcess, {*rank},
                 fmt::format("{} does not run{}; kill -CONT {} continues it", who(*rank), waiting(),
                             group_.members.at(*rank).facts->pid));
    }
    if (current_ != nullptr) {
      if (auto late = not_entered()) return *late;
    }
    if (auto message = unmatched_message()) return *message;
    // A receive from any rank may stand open for as long as its program runs, so a call comes first.
    if (current_ == nullptr) {
      if (auto message = nobodys_message()) return *message;
    }
    return inside();
  }

 private:
  // The lowest rank for which `is` holds.
  template <typename Is>
  std::optional<uint32_t> first(Is is) const {
    for (const auto& [rank, member] : group_.members) {
      if (is(member)) return rank;
    }
    return {};
  }

  // "rank 1 on node n0 (pid 12, sleeping)". A rank of which nothing is known is named without pid and state.
  std::string who(uint32_t rank) const {
    const MemberView& member = group_.members.at(rank);
    if (member.facts == nullptr) return fmt::format("rank {} on node {}", rank, member.node);
    const std::string pid =
        member.facts->pid != 0 ? "pid " + std::to_string(member.facts->pid) : "pid not known there";
    return fmt::format("rank {} on node {} ({}, {})", rank, member.node, pid,
                       state_words(member.facts->process));
  }

  // Seconds since `ns`, a time of the member's node. Never negative: a translated time may lie in the
  // future by the error of the clocks, or by a lie.
  double seconds_since(const MemberView& member, int64_t ns) const {
    const int64_t since_ns = saturating_sub(now_ns_, GroupView::time_of(member, ns));
    return std::max(0.0, static_cast<double>(since_ns) / kNsPerSecond);
  }

  // Finds the oldest collective call that a rank is in (current_, in_it_), whether a message is under way
  // (messages_), and for how long the longest operation of all has lasted.
  void find_current() {
    for (const auto& [rank, member] : group_.members) {
      if (member.facts == nullptr) continue;
      // Messages count for the waiting time, too.
      for (const Operation& operation : member.facts->operations) {
        if (operation.ended_ns != 0) continue;
        messages_ |= operation.is_message();
        verdict_.waiting_s = std::max(verdict_.waiting_s, seconds_since(member, operation.entered_ns));
      }
      const Operation* own = member.current();
      if (own != nullptr && (current_ == nullptr || own->sequence < current_->sequence)) {
        current_ = own;
        in_it_ = rank;
      }
    }
    if (current_ != nullptr)
      verdict_.operation = fmt::format("call {} ({})", current_->sequence, current_->text);
  }

  // The end of a sentence: who waits for how long.
  std::string waiting() const {
    if (current_ != nullptr) {
      return fmt::format("; rank {} is in {} of {} for {:.1f} s", in_it_, verdict_.operation, verdict_.group,
                         verdict_.waiting_s);
    }
    if (messages_)
      return fmt::format("; a message of {} waits for {:.1f} s", verdict_.group, verdict_.waiting_s);
    return " (" + verdict_.group + ")";
  }

  // Completes the verdict. If it is about one rank, the node is that rank's.
  Verdict say(Cause cause, std::vector<uint32_t> ranks, const std::string& words) {
    verdict_.cause = cause;
    verdict_.ranks = std::move(ranks);
    if (verdict_.node.empty() && verdict_.ranks.size() == 1) {
      const auto member = group_.members.find(verdict_.ranks[0]);
      if (member != group_.members.end()) verdict_.node = member->second.node;
    }
    verdict_.sentence = fmt::format("{}: {}", name_of(cause), words);
    return verdict_;
  }

  // The group has failed: the cause follows from the failure's code, and from what is known of the rank
  // that it names.
  Verdict failed() {
    const GroupFacts& facts = *group_.facts;
    std::vector<uint32_t> ranks;
    if (facts.failed_rank >= 0) ranks.push_back(static_cast<uint32_t>(facts.failed_rank));
    // The rank that the failure names, with what is known of it.
    const auto named = ranks.empty() ? group_.members.end() : group_.members.find(ranks[0]);
    // departed in order, rather than failed
    const bool departed = named != group_.members.end() && named->second.facts != nullptr &&
                          named->second.facts->departed && named->second.facts->end.empty();
    // The failure names a rank of a node whose daemon does not answer: that is the cause.
    const bool silent = named != group_.members.end() &&
                        std::any_of(group_.silent.begin(), group_.silent.end(),
                                    [&](const NodeFacts* node) { return node->name == named->second.node; });
    if (silent) return say(Cause::kUnreachableDaemon, ranks, facts.failure);
    switch (static_cast<Code>(facts.code)) {
      case Code::kMismatch:
        return say(Cause::kMismatchedCall, ranks, facts.failure);
      // One code stands for two causes: the rank's process has ended, or the rank has departed before a
      // call that needs it. The failure's text tells them apart on nodes that do not know how the rank
      // ended.
      case Code::kRankLost:
        return say(departed || facts.failure.find(" departed ") != std::string::npos ? Cause::kDepartedEarly
                                                                                     : Cause::kDeadRank,
                   ranks, facts.failure);
      case Code::kAborted:
        return say(Cause::kAborted, ranks, facts.failure);
      case Code::kLink:
        return say(Cause::kLinkDown, ranks, facts.failure);
      case Code::kDaemonLost:
        return say(Cause::kDaemonEnded, ranks, facts.failure);
      case Code::kTimeout:
        return say(Cause::kDeadline, ranks, facts.failure);
      default:
        return say(Cause::kFailed, ranks, facts.failure);
    }
  }

  // A daemon does not answer. Its ranks may still run: they need no daemon within their node.
  Verdict silent_node() {
    const NodeFacts& node = *group_.silent.front();
    std::vector<uint32_t> ranks;
    for (const auto& [rank, member] : group_.members) {
      if (member.node == node.name) ranks.push_back(rank);
    }
    verdict_.node = node.name;
    return say(Cause::kUnreachableDaemon, ranks,
               fmt::format("the daemon of node {}, which has rank {}, does not answer: {}{}", node.name,
                           join_first(ranks, kNamedRanks), node.silence, waiting()));
  }

  // One clause for each step of the circle. It may lead through several groups; the sentence is the same
  // for all of them.
  Verdict ordered_wrongly(const std::vector<Wait>& waits) {
    std::vector<uint32_t> ranks;
    std::string words = "ranks wait for each other in a circle:";
    for (const Wait& wait : waits) {
      ranks.push_back(wait.rank);
      words += fmt::format("{} rank {} of {} is in {}, which rank {} has not entered",
                           ranks.size() == 1 ? "" : ";", wait.rank, wait.group, wait.operation, wait.other);
    }
    return say(Cause::kWrongOrder, ranks, words);
  }

  // Two ranks are in the same call with different arguments. Ranks find that out themselves when all have
  // come; here it is found before that.
  std::optional<Verdict> mismatched() {
    // Ranks in the same call describe it by the same text if its arguments are equal.
    if (current_ == nullptr) return {};
    for (const auto& [rank, member] : group_.members) {
      const Operation* own = member.current();
      if (own == nullptr || own->sequence != current_->sequence || own->text == current_->text) continue;
      return say(Cause::kMismatchedCall, {in_it_, rank},
                 fmt::format("call {} of {}: rank {} calls {}, rank {} calls {}", current_->sequence,
                             verdict_.group, in_it_, current_->text, rank, own->text));
    }
    return {};
  }

  // A rank has not entered current_. If it has departed, it never will.
  std::optional<Verdict> not_entered() {
    // A rank is late if it has made no more calls than current_'s number, counted from 0. A rank of which
    // nothing is known is not judged.
    std::vector<uint32_t> late;
    for (const auto& [rank, member] : group_.members) {
      if (member.facts == nullptr || member.calls() > current_->sequence) continue;
      if (member.facts->departed) {
        return say(Cause::kDepartedEarly, {rank},
                   fmt::format("{} departed after {} calls{}", who(rank), member.facts->calls, waiting()));
      }
      late.push_back(rank);
    }
    if (late.empty()) return {};
    const MemberView& member = group_.members.at(late[0]);
    // If there is one late rank, say what it did before: that is where it may hang.
    const Operation* last = member.last();
    const std::string before =
        last == nullptr ? "it has made no call before"
                        : fmt::format("its last operation was {} {} ({}), which ended {:.1f} s ago",
                                      last->is_message() ? "message" : "call", last->sequence, last->text,
                                      seconds_since(member, last->ended_ns));
    std::string words = fmt::format("{} of {} is not entered by ", verdict_.operation, verdict_.group);
    words += late.size() == 1 ? who(late[0]) : "rank " + join_first(late, kNamedRanks);
    words += fmt::format("; others have waited for {:.1f} s", verdict_.waiting_s);
    if (late.size() == 1) words += "; " + before;
    return say(Cause::kLateRank, late, words);
  }

  // The first message without a counterpart. The verdict is about the other rank, which should have made
  // one.
  std::optional<Verdict> unmatched_message() {
    for (const auto& [rank, member] : group_.members) {
      for (const auto& [operation, other] : unmatched(group_, rank)) {
        // The kinds are those that ipc/recorder.h writes.
        const bool send = operation->kind == "send";
        const double since = seconds_since(member, operation->entered_ns);
        verdict_.operation = fmt::format("message {} ({})", operation->sequence, operation->text);
        verdict_.waiting_s = since;
        return say(
            Cause::kUnmatchedMessage, {other},
            fmt::format("{} has not {} message {} ({} bytes) {} rank {} of {}, which has waited for {:.1f} s",
                        who(other), send ? "received" : "sent", operation->sequence, operation->bytes,
                        send ? "from" : "to", rank, verdict_.group, since));
      }
    }
    return {};
  }

  // A receive from any rank, of which nobody in particular is the sender.
  std::optional<Verdict> nobodys_message() {
    for (const auto& [rank, member] : group_.members) {
      if (member.facts == nullptr) continue;
      for (const Operation& operation : member.facts->operations) {
        if (operation.peer != int64_t{ipc::kAnyRank} || operation.ended_ns != 0) continue;
        verdict_.operation = operation.text;
        verdict_.waiting_s = seconds_since(member, operation.entered_ns);
        return say(
            Cause::kUnmatchedMessage, {},
            fmt::format("no rank of {} has sent a message to {}, which has waited for {:.1f} s for one "
                        "of {} bytes from any rank",
                        verdict_.group, who(rank), verdict_.waiting_s, operation.bytes));
      }
    }
    return {};
  }

  // Every rank is in the operation. The links are left, and time.
  Verdict inside() {
    const std::string what = verdict_.operation.empty() ? "a message" : verdict_.operation;
    if (const auto trouble = judge_links(group_)) {
      verdict_.node = trouble->node;
      return say(trouble->cause, {},
                 fmt::format("{}; every rank is in {} of {}", trouble->words, what, verdict_.group));
    }
    // Under way: the operation is young, or something came from another node a moment ago. A group of one
    // node has no such sign, so only the time counts.
    const auto quiet = quiet_seconds(group_);
    if (verdict_.waiting_s < kStuckSeconds || (quiet && *quiet < kStuckSeconds)) {
      return say(
          Cause::kUnderWay, {},
          fmt::format("every rank is in {} of {}, since {:.1f} s", what, verdict_.group, verdict_.waiting_s));
    }
    std::string words = fmt::format("every rank is in {} of {} for {:.1f} s, and it does not end", what,
                                    verdict_.group, verdict_.waiting_s);
    if (quiet) words += fmt::format("; nothing came from other nodes for {:.1f} s", *quiet);
    return say(Cause::kStuck, {}, words);
  }

  const GroupView& group_;
  const int64_t now_ns_;
  // the oldest collective call under way; null: none
  const Operation* current_ = nullptr;
  // the first rank that is in it
  uint32_t in_it_ = 0;
  // a message is under way
  bool messages_ = false;
  Verdict verdict_;
};

}  // namespace

// One verdict for each group of which any node knows. The first of the facts are the asking node's own,
// whose clock counts. Groups that need help come first; among equal ones the order is that of their ids.
std::vector<Verdict> judge(const std::vector<NodeFacts>& facts) {
  // 1. One view per group, and the circle over all of them.
  const auto groups = views_of(facts);
  const auto waits = circle(groups);
  std::vector<Verdict> verdicts;
  for (const auto& [id, group] : groups) {
    const std::string& name = group.facts->name;
    // 2. Each group that the circle leads through gets the same verdict.
    const bool in_circle =
        std::any_of(waits.begin(), waits.end(), [&](const Wait& wait) { return wait.group == name; });
    verdicts.push_back(Judge(id, group, facts[0].now_ns).run(in_circle ? waits : std::vector<Wait>{}));
  }
  // Groups that have ended come after those that run, however bad their end was.
  const auto order = [&](const Verdict& v) {
    const bool over = groups.at(v.group_id).facts->ended;
    return std::pair{
        over && is_trouble(v.cause) ? static_cast<int>(Cause::kUnderWay) - 1 : static_cast<int>(v.cause),
        over};
  };
  std::stable_sort(verdicts.begin(), verdicts.end(),
                   [&](const Verdict& a, const Verdict& b) { return order(a) < order(b); });
  return verdicts;
}

}  // namespace hdt::daemon
