// rate_changes.cc: see rate_changes.h.
#include "daemon/group/rate_changes.h"

#include <algorithm>

#include "base/clock.h"

namespace hdt::daemon {

namespace {

constexpr int64_t kNeverNs = std::numeric_limits<int64_t>::max();
// The links must have been as they are for so long before rates change. A rail that is lost often takes
// others with it within some milliseconds.
constexpr int64_t kSettledNs = 300 * kNsPerMs;
// From one change to the next.
constexpr int64_t kPauseNs = kNsPerSecond;

}  // namespace

RateChanges::RateChanges(Group& group, uint64_t id, uint32_t me, uint32_t nodes, ipc::Journal journal)
    : group_(group),
      id_(id),
      me_(me),
      nodes_(nodes),
      journal_(journal),
      before_(journal.changed_rates()),
      parts_(size_t{nodes} * nodes, ipc::kWholeLink),
      promise_(journal.promised()),
      mine_(nodes, ipc::kWholeLink),
      told_(nodes) {
  for (Told& told : told_) told.parts.assign(nodes, ipc::kWholeLink);
  if (before_.empty()) return;
  number_ = before_.back().number;
  call_ = before_.back().call;
  parts_ = before_.back().parts;
}

// A link has two ends. Either may have heard first that a rail is lost, or may have the slower NICs.
RateChanges::Parts RateChanges::told() const {
  Parts parts(size_t{nodes_} * nodes_, ipc::kWholeLink);
  for (uint32_t from = 0; from < nodes_; ++from) {
    for (uint32_t to = 0; to < nodes_; ++to)
      parts[size_t{from} * nodes_ + to] = std::min(told_[from].parts[to], told_[to].parts[from]);
  }
  return parts;
}

void RateChanges::send(uint32_t node, RateChangeMessage::Kind kind, uint64_t number, uint64_t call,
                       const Parts& parts) {
  group_.send(node, RateChangeMessage{id_, me_, kind, number, call, parts});
}

void RateChanges::tell_links() { send(0, RateChangeMessage::Kind::kNow, ++times_told_, 0, mine_); }

void RateChanges::look_later(int64_t now_ns) { propose_at_ = std::max(now_ns + kSettledNs, next_change_ns_); }

void RateChanges::set_link(uint32_t node, ipc::LinkPart part, int64_t now_ns) {
  if (mine_[node] == part) return;
  mine_[node] = part;
  if (!proposes()) return tell_links();
  told_[me_].parts = mine_;
  look_later(now_ns);
}

// Messages that were sent to a daemon which has ended are lost, and so is what a daemon knew that has ended.
// Everything may be repeated.
void RateChanges::on_back(uint32_t node, int64_t now_ns) {
  if (!proposes()) {
    if (node != 0) return;
    tell_links();
    if (number_ != 0 && passed_here_) send(0, RateChangeMessage::Kind::kPassed, number_, 0, {});
    return;
  }
  // A successor counts its messages anew.
  told_[node].number = 0;
  if (proposed_ != 0) {
    send(node, RateChangeMessage::Kind::kPropose, proposed_, 0, {});
  } else if (number_ != 0 && !told_[node].passed) {
    send(node, RateChangeMessage::Kind::kCommit, number_, call_, parts_);
  }
  look_later(now_ns);
  if (owes()) propose_at_ = now_ns;
}

std::string RateChanges::on_message(const RateChangeMessage& note, int64_t now_ns) {
  using Kind = RateChangeMessage::Kind;
  const bool to_proposer = note.kind == Kind::kNow || note.kind == Kind::kHold || note.kind == Kind::kPassed;
  if (to_proposer != proposes() || (!to_proposer && note.from != 0))
    return "a change of rates in another's place";
  switch (note.kind) {
    case Kind::kNow: {
      if (note.parts.size() != nodes_) return "the parts of another number of links";
      Told& told = told_[note.from];
      if (note.number <= told.number) break;
      told.number = note.number;
      if (told.parts != note.parts) look_later(now_ns);
      told.parts = note.parts;
      break;
    }
    case Kind::kPropose:
      on_proposal(note.number);
      break;
    case Kind::kHold:
      on_hold(note.from, note.number, note.call, now_ns);
      break;
    case Kind::kCommit:
      return on_commit(note);
    case Kind::kPassed:
      if (note.number == number_) told_[note.from].passed = true;
      break;
  }
  return {};
}

// At node 0. What this node has promised itself is the first to be kept.
void RateChanges::propose() {
  proposed_ = std::max(promise_.change, number_) + 1;
  for (Told& told : told_) told.hold.reset();
  promise(proposed_);
  told_[me_].hold = promise_.hold;
  for (uint32_t node = 0; node < nodes_; ++node) {
    if (node != me_) send(node, RateChangeMessage::Kind::kPropose, proposed_, 0, {});
  }
}

// A proposal that is older than a promise or a change was sent by a predecessor of node 0's daemon, or was
// slower than what came after it.
void RateChanges::on_proposal(uint64_t number) {
  if (number <= number_ || number < promise_.change) return;
  promise(number);
  send(0, RateChangeMessage::Kind::kHold, number, promise_.hold, {});
}

void RateChanges::promise(uint64_t number) {
  if (promise_.change == number) return;
  const uint64_t kept = hold();
  promise_ = {number, kept == kNoCall ? group_.first_unread() : kept};
  journal_.promise(promise_);
}

void RateChanges::on_hold(uint32_t node, uint64_t number, uint64_t call, int64_t now_ns) {
  if (number != proposed_ || proposed_ == 0) return;
  told_[node].hold = call;
  uint64_t first = 0;
  for (const Told& told : told_) {
    if (!told.hold) return;
    first = std::max(first, *told.hold);
  }
  proposed_ = 0;
  for (Told& told : told_) told.passed = false;
  next_change_ns_ = now_ns + kPauseNs;
  change(number, first, told());
  for (uint32_t other = 0; other < nodes_; ++other) {
    if (other != me_) send(other, RateChangeMessage::Kind::kCommit, number_, call_, parts_);
  }
  look_later(now_ns);  // the links may have changed meanwhile
}

// The change is node 0's to decide; it can only not be one that this node has not promised.
std::string RateChanges::on_commit(const RateChangeMessage& note) {
  if (note.parts.size() != parts_.size()) return "rates of another number of links";
  if (note.number <= number_) {
    if (note.number == number_ && passed_here_) send(0, RateChangeMessage::Kind::kPassed, number_, 0, {});
    return {};
  }
  if (note.number != promise_.change || note.call < promise_.hold)
    return "rates for a call that was not held";
  change(note.number, note.call, note.parts);
  return {};
}

void RateChanges::change(uint64_t number, uint64_t call, const Parts& parts) {
  journal_.change_rates(number, call, parts);
  number_ = number;
  call_ = call;
  parts_ = parts;
  passed_here_ = false;
  group_.change_rates(call, parts);
  on_progress();
}

void RateChanges::on_progress() {
  if (has_passed() || group_.first_unfinished() < call_) return;
  passed_here_ = true;
  told_[me_].passed = true;
  if (!proposes()) send(0, RateChangeMessage::Kind::kPassed, number_, 0, {});
}

void RateChanges::on_time(int64_t now_ns) {
  if (now_ns < propose_at_) return;
  propose_at_ = kNeverNs;
  if (proposed_ != 0) return;
  const bool owed = owes();
  if (!owed && told() == parts_) return;
  const bool all_passed =
      number_ == 0 || std::all_of(told_.begin(), told_.end(), [](const Told& told) { return told.passed; });
  if (!group_.all_open() || (!owed && !all_passed)) return look_later(now_ns);
  if (owed || group_.is_worth(told())) propose();
}

}  // namespace hdt::daemon
