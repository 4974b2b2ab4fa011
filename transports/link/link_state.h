// link_state.h: the inside of a Link. link.cc sends and receives; rail_loss.cc is about rails that come, go
// and fall silent.
#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "transports/link/arrivals.h"
#include "transports/link/link.h"
#include "transports/link/notice.h"
#include "transports/link/outbox.h"
#include "transports/link/rail.h"

namespace hdt::transport {

inline constexpr int64_t kNeverNs = INT64_MAX;

// In each call of a link: notes where one is left by an exception.
class Tear {
 public:
  explicit Tear(bool& torn) : torn_(torn) {}
  Tear(const Tear&) = delete;
  Tear& operator=(const Tear&) = delete;
  ~Tear() {
    if (std::uncaught_exceptions() > before_) torn_ = true;
  }

 private:
  bool& torn_;
  const int before_ = std::uncaught_exceptions();
};

struct Link::State {
  enum class Phase { kUp, kClosing, kDown };

  State(Link& link, LinkObserver& watcher, LinkOptions with);

  // link.cc
  Rail* rail_of(const Connection* connection);
  size_t rails_up() const;
  void pump();
  bool hand_over(int64_t now);
  Rail* best_rail(int64_t now);
  bool alone(const Rail& rail) const { return rails_up() == 1 && !rail.shared(options.now()); }
  uint64_t most_bytes_of_a_chunk() const;
  void on_sent(Rail& rail, const Completion& completion);
  void on_written(Rail& rail, const Completion& completion);
  void on_notice(Rail& rail, std::span<const std::byte> message);
  void on_numbered(Rail& rail, const NoticeHead& head, std::span<const std::byte> body);
  // What a chunk or a notice says of the other direction.
  bool acknowledge(Rail& rail, uint32_t received, Stamp at);
  void acknowledge_notices(uint64_t up_to);
  void arrived(const Outbox::Chunk& chunk);
  void handed_over(Outbox::Chunk& chunk);
  // Queues a numbered notice and sends it, if there is a rail for it.
  void post(NoticeKind kind, std::vector<std::byte> body);
  void send_on(Rail& rail, NoticeKind kind, uint64_t number, std::span<const std::byte> body);
  void start_closing(const Status& why);
  void report_down_if_closed();

  // rail_loss.cc
  void on_hello(Rail& rail, std::span<const std::byte> body);
  void on_rail_lost(const RailLostBody& lost);
  void on_closed(Rail& rail, const Status& reason);
  // Stops using the rail: its connection is closed without a word, and what was lost is settled after that.
  void give_up(Rail& rail, const Status& reason);
  void use_no_more(Rail& rail, const std::string& reason);
  // Both ends have closed it and know what had come: the rest goes back to the queue.
  void settle(Rail& rail);
  void choose_notice_rail();
  void forget(const Rail& rail);
  void remember(const Rail& rail);
  int64_t patience_ns(const Rail& rail, int64_t now) const;
  void look_for_silence(int64_t now);
  void watch_progress();
  void give_up_greetings(int64_t now);

  Link& self;
  LinkObserver& observer;
  const LinkOptions options;
  Phase phase = Phase::kUp;
  Status reason;
  std::vector<std::unique_ptr<Rail>> rails;
  std::vector<std::unique_ptr<Rail>> done_rails;  // may be on the call stack; freed by flush()
  std::vector<RailStatus> lost;                   // until a rail between the same addresses comes
  uint32_t next_rail = 0;
  Outbox outbox;
  Arrivals arrivals;

  uint64_t number = 0;       // random, of this link
  uint64_t peer_number = 0;  // 0: no hello has come yet

  // Numbered notices all go on one rail, in order, until it is lost: then what the peer may lack goes again
  // on the next one.
  struct Numbered {
    uint64_t number;
    NoticeKind kind;
    std::vector<std::byte> body;
  };
  std::deque<Numbered> notices;  // not acknowledged
  uint64_t last_notice = 0;
  uint64_t notices_received = 0;
  Rail* notice_rail = nullptr;

  std::set<uint32_t> lost_unseen;  // by the peer's numbers: lost there before they were known here

  bool torn = false;       // see Link::torn()
  bool peer_ends = false;  // it closed a rail in order
  bool had_rail = false;
  std::string last_loss;
  int64_t wait_until_ns = kNeverNs;   // without a rail: when the link ends
  int64_t next_look_ns = kNeverNs;    // for silent rails
  int64_t hello_until_ns = kNeverNs;  // of new rails
};

}  // namespace hdt::transport
