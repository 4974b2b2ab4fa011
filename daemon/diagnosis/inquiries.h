// inquiries.h: asks other daemons questions (Inquiry, Reply) and waits for their answers no longer than a
// given time. Before the question itself it compares the other daemon's clock with ours, so that the
// times in the answer can be translated. Connections are kept for some seconds, as one question often
// follows another.
//
// Owner and thread: Control; the control thread. The other daemon's side is Diagnosis::on_inquiry().
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/membership/channels.h"
#include "daemon/protocol/control_messages.h"

namespace hdt::daemon {

// The answer of one daemon.
struct Answer {
  // as it was asked: the daemon's address
  std::string address;
  // ok, or why there is no text
  Status status;
  // with an ok status: JSON, foreign
  std::string text;
  // its clock minus ours, in ns
  int64_t offset_ns = 0;
  // ns of the fastest exchange: the offset is right to half of it. INT64_MAX: no exchange succeeded
  int64_t round_trip_ns = 0;
};

class Inquiries {
 public:
  using Then = std::function<void(std::vector<Answer>)>;
  // A connection on which nothing is asked is kept for so long, in ms. So a node that asks all others now
  // and then does not keep a connection to each.
  static constexpr int64_t kIdleMs = 5'000;
  // `channels` must live as long as this object.
  explicit Inquiries(Channels& channels, int64_t idle_ms = kIdleMs)
      : channels_(channels), idle_ms_(idle_ms) {}

  // Asks `what` (Inquiry::what) at each address on behalf of `viewer`. Calls `then` once, when all
  // answers have come or `budget_ms` is over, with an answer for each address, in their order. With no
  // addresses it is called at once.
  void ask(const std::vector<std::string>& addresses, const std::string& what, const Viewer& viewer,
           int64_t budget_ms, Then then);
  // An answer came. It counts only on the connection on which its question was sent.
  void on_reply(ChannelId channel, const Reply& reply);
  // A connection has ended: the questions on it are answered with `why`.
  void on_closed(ChannelId channel, const Status& why);
  // Answers what is too late with kTimeout, and closes connections that were idle.
  void on_time();
  // When on_time() has something to do next; nothing: never.
  std::optional<Deadline> next_time() const;

 private:
  // One call of ask().
  struct Question {
    std::string what;
    Viewer viewer;
    int64_t budget_ms = 0;
    Deadline until = Deadline::never();
    Then then;
    // one for each address; complete when `open` is 0
    std::vector<Answer> answers;
    // addresses without an answer
    size_t open = 0;
  };
  // One address of a question: first kClocks exchanges about the clock, then the question.
  struct Asked {
    std::shared_ptr<Question> question;
    // its place in Question::answers
    size_t index;
    ChannelId channel;
    // exchanges about the clock that are done
    int clocks = 0;
    // now_ns() when the current inquiry was sent
    int64_t sent_ns = 0;
    // the current inquiry is about the clock
    bool is_clock = true;
  };

  // Sends the next inquiry of this address.
  void send(Asked asked);
  // The address has its answer. Calls `then` with the last one.
  void close(const Asked& asked, const Status& status);
  // If nothing is asked on the connection any more, its idle time begins.
  void rest(ChannelId channel);

  Channels& channels_;
  // A connection to one address.
  struct Connection {
    ChannelId channel = 0;
    // when it is closed; never: something is asked on it
    Deadline idle_until = Deadline::never();
  };
  const int64_t idle_ms_;
  // by address
  std::map<std::string, Connection> connections_;
  // by the number of the inquiry under way
  std::map<uint64_t, Asked> asked_;
  uint64_t next_number_ = 1;
};

}  // namespace hdt::daemon
