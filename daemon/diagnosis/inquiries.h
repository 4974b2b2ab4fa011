// inquiries.h: asks other daemons, over control connections that are kept, and waits for their answers no
// longer than it is told to. Each one's clock is compared with ours first, so that its times can be turned
// into ours. Runs on the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "daemon/membership/rendezvous.h"
#include "daemon/protocol/control_messages.h"

namespace hdt::daemon {

struct Answer {
  std::string address;  // who was asked
  Status status;        // of a failure: why there is no text
  std::string text;
  int64_t offset_ns = 0;      // its clock less ours
  int64_t round_trip_ns = 0;  // of the fastest exchange: the offset is right to half of it
};

class Inquiries {
 public:
  struct Services {
    std::function<ChannelId(const std::string& address)> dial;
    std::function<void(ChannelId, const ControlMessage&)> send;
    // Nothing more is sent on it.
    std::function<void(ChannelId)> finish;
  };
  using Then = std::function<void(std::vector<Answer>)>;
  // A connection on which nothing is asked is kept for `idle_ms`: whoever asks all nodes now and then keeps
  // none to each.
  static constexpr int64_t kIdleMs = 5'000;
  explicit Inquiries(Services services, int64_t idle_ms = kIdleMs)
      : services_(std::move(services)), idle_ms_(idle_ms) {}

  // Calls `then` once, with an answer for each address, in their order: when all have come, or the time is
  // over. With no addresses at once.
  void ask(const std::vector<std::string>& addresses, const std::string& what, const Viewer& viewer,
           int64_t budget_ms, Then then);
  void on_reply(ChannelId channel, const Reply& reply);
  void on_closed(ChannelId channel, const Status& why);
  void on_time();
  std::optional<Deadline> next_time() const;

 private:
  struct Question {
    std::string what;
    Viewer viewer;
    int64_t budget_ms = 0;
    Deadline until = Deadline::never();
    Then then;
    std::vector<Answer> answers;
    size_t open = 0;
  };
  // One address of a question.
  struct Asked {
    std::shared_ptr<Question> question;
    size_t index;
    ChannelId channel;
    int clocks = 0;  // exchanges done
    int64_t sent_ns = 0;
    bool is_clock = true;
  };

  void send(Asked asked);
  void close(const Asked& asked, const Status& status);
  // The channel begins to be idle if nothing is asked on it.
  void rest(ChannelId channel);

  Services services_;
  struct Connection {
    ChannelId channel = 0;
    Deadline idle_until = Deadline::never();  // never: something is asked on it
  };
  const int64_t idle_ms_;
  std::map<std::string, Connection> channels_;  // by address
  std::map<uint64_t, Asked> asked_;             // by the inquiry's number
  uint64_t next_number_ = 1;
};

}  // namespace hdt::daemon
