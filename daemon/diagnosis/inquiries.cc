// inquiries.cc: see inquiries.h. The clocks are compared as NTP does it: the other daemon's time is taken
// to be that of the middle of the exchange; the fastest exchange has the smallest error.
#include "daemon/diagnosis/inquiries.h"

#include <algorithm>
#include <utility>

#include "base/saturate.h"

namespace hdt::daemon {

namespace {

// The number of exchanges about the clock.
constexpr int kClocks = 4;

}  // namespace

// The question is shared by its addresses: each holds a pointer to it, and the last one to be answered
// calls `then`.
void Inquiries::ask(const std::vector<std::string>& addresses, const std::string& what, const Viewer& viewer,
                    int64_t budget_ms, Then then) {
  auto question = std::make_shared<Question>();
  question->what = what;
  question->viewer = viewer;
  question->budget_ms = budget_ms;
  question->until = Deadline::after_ms(budget_ms);
  question->then = std::move(then);
  question->open = addresses.size();
  for (const std::string& address : addresses)
    // INT64_MAX, so that the first exchange is the fastest so far.
    question->answers.push_back({address, Status::ok(), "", 0, INT64_MAX});
  if (addresses.empty()) return question->then({});
  for (size_t i = 0; i < addresses.size(); ++i) {
    // An open connection is used again, and is no longer idle. Nothing is known yet of a new one; the
    // control network keeps the inquiry until it is connected, and reports through on_closed() if that
    // fails.
    const auto [found, is_new] = connections_.try_emplace(addresses[i]);
    Connection& connection = found->second;
    if (is_new) connection.channel = channels_.dial(addresses[i]);
    connection.idle_until = Deadline::never();
    send({question, i, connection.channel});
  }
}

// The clock is asked without a viewer, as it reveals nothing about groups. The entry is made before the
// message is sent, so that whatever ends the connection finds it.
void Inquiries::send(Asked asked) {
  asked.is_clock = asked.clocks < kClocks;
  asked.sent_ns = now_ns();
  const ChannelId channel = asked.channel;
  const Inquiry inquiry{next_number_++, asked.is_clock ? "clock" : asked.question->what,
                        asked.is_clock ? Viewer{} : asked.question->viewer};
  asked_.emplace(inquiry.number, std::move(asked));
  channels_.send(channel, inquiry);
}

// Numbers are this node's own, but the sender may be anybody: the answer must come on the channel on which
// the question went out.
void Inquiries::on_reply(ChannelId channel, const Reply& reply) {
  // A late answer to a question that is over, or one in another daemon's name.
  const auto found = asked_.find(reply.number);
  if (found == asked_.end() || found->second.channel != channel) return;
  Asked asked = std::move(found->second);
  asked_.erase(found);
  Answer& answer = asked.question->answers[asked.index];
  if (reply.code != Code::kSuccess) {
    close(asked, Status(reply.code, reply.text));
    return rest(channel);
  }
  // The next inquiry of this address: the clock again, or the question itself.
  if (asked.is_clock) {
    const int64_t now = now_ns();
    // The fastest exchange counts. The first one waits for the connection and is the slowest.
    if (now - asked.sent_ns < answer.round_trip_ns) {
      answer.round_trip_ns = now - asked.sent_ns;
      answer.offset_ns = saturating_sub(reply.now_ns, asked.sent_ns + answer.round_trip_ns / 2);
    }
    ++asked.clocks;
    return send(std::move(asked));
  }
  answer.text = reply.text;
  close(asked, Status::ok());
  rest(channel);
}

// exchange(): `then` runs once, and what it holds is freed afterwards.
void Inquiries::close(const Asked& asked, const Status& status) {
  Question& question = *asked.question;
  question.answers[asked.index].status = status;
  if (--question.open == 0) std::exchange(question.then, nullptr)(std::move(question.answers));
}

// Kept open for a while, since whoever asks `why` asks again.
void Inquiries::rest(ChannelId channel) {
  if (std::any_of(asked_.begin(), asked_.end(),
                  [channel](const auto& entry) { return entry.second.channel == channel; }))
    return;
  for (auto& [address, connection] : connections_) {
    if (connection.channel == channel) connection.idle_until = Deadline::after_ms(idle_ms_);
  }
}

// All questions on the connection end with it. The next ask() dials anew.
void Inquiries::on_closed(ChannelId channel, const Status& why) {
  std::erase_if(connections_, [&](const auto& entry) { return entry.second.channel == channel; });
  // Taken out of the map first: `then` may ask anew.
  std::vector<Asked> over;
  std::erase_if(asked_, [&](const auto& entry) {
    if (entry.second.channel == channel) over.push_back(entry.second);
    return entry.second.channel == channel;
  });
  for (const Asked& asked : over) close(asked, why);
}

// A question ends at its time in any case, so `then` is called even if no daemon ever answers.
void Inquiries::on_time() {
  // 1. Questions whose time is over. Their connections are kept: the daemon may only be slow, and its
  //    late answer is ignored.
  std::vector<Asked> over;
  std::erase_if(asked_, [&](const auto& entry) {
    if (entry.second.question->until.expired()) over.push_back(entry.second);
    return entry.second.question->until.expired();
  });
  for (const Asked& asked : over) {
    close(asked,
          Status(Code::kTimeout, "no answer within " + std::to_string(asked.question->budget_ms) + " ms"));
  }
  for (const Asked& asked : over) rest(asked.channel);
  // 2. Connections that nothing has been asked on for a while.
  std::erase_if(connections_, [&](const auto& entry) {
    if (!entry.second.idle_until.expired()) return false;
    channels_.finish(entry.second.channel);
    return true;
  });
}

// Nothing: neither a question nor an idle connection is there.
std::optional<Deadline> Inquiries::next_time() const {
  Deadline next = Deadline::never();
  for (const auto& [number, asked] : asked_) next = Deadline::earlier(next, asked.question->until);
  for (const auto& [address, connection] : connections_)
    next = Deadline::earlier(next, connection.idle_until);
  if (next.is_never()) return {};
  return next;
}

}  // namespace hdt::daemon
