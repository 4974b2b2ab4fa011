// link_state.h: the private state of a Link, shared by its two source files. link.cc sends and receives;
// rail_loss.cc handles rails that come, go and fall silent. Nobody else includes this file.
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

// Guards every public call of a link that changes it. If an exception leaves the call, `torn` becomes true:
// the state may be half written then, and the engine ends the link (Link::torn()).
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

// Owned by its Link, used on the engine's thread. Invariants:
//  - A Rail stays in `rails` until its connection has reported kClosed and its fragments are settled, so a
//    completion always finds its rail.
//  - Every fragment is in exactly one place: in the outbox, or in the book of one rail.
//  - `notice_rail` is a rail that is up, or null; it is null if no rail is up.
//  - Functions that report to the observer may find the phase changed afterwards, as the observer may call
//    write(), send() or close(). They look at `phase` again before they go on.
struct Link::State {
  // kUp: in use, with or without a rail. kClosing: every connection was told to close, and kClosed of some is
  // awaited. kDown: on_down() was called; the end.
  enum class Phase { kUp, kClosing, kDown };

  State(Link& link, LinkObserver& watcher, LinkOptions with);

  // --- link.cc ---
  // The rail of a connection that has not reported kClosed yet, or null.
  Rail* rail_of(const Connection* connection);
  size_t rails_up() const;
  // Hands fragments to rails while there are fragments and a rail may take one.
  void pump();
  // Hands over one fragment. False if no rail may take one now.
  bool hand_over(int64_t now);
  // The rail with room and the NIC's turn that would be done with the next fragment first; null: none.
  Rail* best_rail(int64_t now);
  // True if neither another rail of this link nor another class uses the rail's NIC. Such a rail needs no
  // window of its own: the backend's queue bounds it, and nobody waits behind it.
  bool alone(const Rail& rail) const { return rails_up() == 1 && !rail.shared(options.now()); }
  // The maximum size of a fragment, in bytes, for a write that is queued now.
  uint64_t most_bytes_of_a_fragment() const;
  void on_sent(Rail& rail, const Completion& completion);
  void on_written(Rail& rail, const Completion& completion);
  void on_notice(Rail& rail, std::span<const std::byte> message);
  void on_numbered(Rail& rail, const NoticeHead& head, std::span<const std::byte> body);
  // Takes the peer's count of fragments that a fragment or a notice carries for the other direction. False if
  // the link is ending, because the count cannot be or because the observer has closed the link.
  bool acknowledge(Rail& rail, uint32_t received, Stamp at);
  void acknowledge_notices(uint64_t up_to);
  // A fragment of ours has arrived at the peer.
  void arrived(const Outbox::Fragment& fragment);
  // A fragment of ours was reported sent by its backend. Counts once, even if the fragment is sent again.
  void handed_over(Outbox::Fragment& fragment);
  // Queues a numbered notice, and sends it if there is a rail for it.
  void post(NoticeKind kind, std::vector<std::byte> body);
  // Sends a notice. `number` is 0 for a kind that is not numbered.
  void send_on(Rail& rail, NoticeKind kind, uint64_t number, std::span<const std::byte> body);
  // Closes every connection in order. The caller calls report_down_if_closed() where no kClosed may follow.
  void start_closing(const Status& why);
  void report_down_if_closed();

  // --- rail_loss.cc ---
  void on_hello(Rail& rail, std::span<const std::byte> body);
  void on_rail_lost(const RailLostBody& lost);
  void on_closed(Rail& rail, const Status& reason);
  // Stops using the rail and abandons its connection. Data that was lost on it is settled after its kClosed.
  void give_up(Rail& rail, const Status& reason);
  // Marks the rail as down, and reports that to the peer and the observer. Called once per rail.
  void use_no_more(Rail& rail, const std::string& reason);
  // Returns what was lost to the outbox and drops the rail. No effect before this end has closed the rail and
  // the peer's count is known.
  void settle(Rail& rail);
  void choose_notice_rail();
  // Takes the rail off the list. It is freed later, by flush().
  void forget(const Rail& rail);
  // Keeps the counters of a lost rail for the rail that takes its place.
  void remember(const Rail& rail);
  // How long a silent rail is waited for, in ns.
  int64_t patience_ns(const Rail& rail, int64_t now) const;
  void look_for_silence(int64_t now);
  // Makes sure that silence is looked for while more than one rail is up. To be called after each send.
  void watch_progress();
  // Gives up new rails on which the peer's hello did not come in time.
  void give_up_greetings(int64_t now);

  Link& self;
  LinkObserver& observer;
  const LinkOptions options;
  Phase phase = Phase::kUp;
  Status reason;  // why the link ends; set by start_closing()
  std::vector<std::unique_ptr<Rail>> rails;
  std::vector<std::unique_ptr<Rail>> done_rails;  // finished, but may be on the call stack; freed by flush()
  std::vector<RailStatus> lost;                   // until a rail between the same addresses comes
  uint32_t next_rail = 0;                         // this end's number of the next rail
  Outbox outbox;
  Arrivals arrivals;

  uint64_t number = 0;       // of this link: random and not 0, so that its successor has another one
  uint64_t peer_number = 0;  // of the peer's link; 0: no hello has come yet

  // All numbered notices go on one rail, in order, until that rail is lost. Then those that the peer has not
  // acknowledged are sent again on the next one, with their old numbers.
  struct Numbered {
    uint64_t number;
    NoticeKind kind;
    std::vector<std::byte> body;
  };
  std::deque<Numbered> notices;   // not acknowledged, in ascending order
  uint64_t last_notice = 0;       // the latest number given out; numbers start at 1
  uint64_t notices_received = 0;  // the peer's notices 1 to this one have come
  Rail* notice_rail = nullptr;

  // The peer's numbers of rails that the peer has reported lost before its hello on them was read here.
  std::set<uint32_t> lost_unseen;

  bool torn = false;       // see Link::torn()
  bool peer_ends = false;  // the peer closed a rail in order, so all others are about to follow
  bool had_rail = false;   // a rail was up at some time; before, the engine's dialing has its own time limit
  std::string last_loss;   // the rail and the reason of the latest loss; in the reason of the link's end
  // Times as by LinkOptions::now, kNeverNs where nothing is awaited.
  int64_t wait_until_ns = kNeverNs;   // the link has no rail, and ends then
  int64_t next_look_ns = kNeverNs;    // when to look for silent rails
  int64_t hello_until_ns = kNeverNs;  // the earliest limit for the hello on a new rail
};

}  // namespace hdt::transport
