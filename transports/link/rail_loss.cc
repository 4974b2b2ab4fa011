// rail_loss.cc: rails that come, go and fall silent.
//
// A rail comes: add_rail() sends our hello, and on_hello() takes the peer's. From then on the rail is up. The
// hello names both links, so a link is never continued with the predecessor or the successor of the peer's
// link.
//
// A rail is lost: no fragment may ever be placed twice, because its place may hold something newer by then.
// So nothing is sent again by guess:
//   1. Each end stops using the rail, abandons its connection, and sends over another rail how many fragments
//      came on it (kRailLost). A rail delivers in order, so that this one number says which ones. From then
//      on nothing of that rail counts or is placed. An end that hears of a loss first gives up its own end in
//      the same way.
//   2. When this end's connection has reported kClosed and the peer's number is known, settle() takes the
//      fragments below the number as arrived, and returns exactly the others to the outbox.
//
// A rail falls silent: look_for_silence() pings it, and gives it up if the peer is heard on another rail
// meanwhile.
#include <algorithm>

#include "base/address.h"
#include "transports/link/link_state.h"

namespace hdt::transport {

namespace {

// How often silence is looked for, and how long a silence lasts before the rail is pinged. At the default
// link.stall_ms of 20 there is time for a ping and its answer.
constexpr int64_t kLookNs = 5 * kNsPerMs;
constexpr int64_t kPingNs = 6 * kNsPerMs;
// On a rail whose acknowledgements ordinarily take long, what is under way is late and not lost. The patience
// has this limit, in link.stall_ms.
constexpr int64_t kPatientTimes = 10;
// While rails of other links between the same NICs move, the NICs and the path work. Packets that are
// queued behind them are late. TCP's timer sends packets again that the NIC's queue has dropped, after 200
// ms, and after 400 ms more if they are dropped again. This patience has a limit as well, because a path can
// fail for one connection alone.
constexpr int64_t kBesideOthersNs = kNsPerSecond;
// TCP's timer of the first time. Where a queue that several rails share overflows, it may have dropped what
// each of them had under way, and then nothing moves on any of them until the first timer fires.
constexpr int64_t kTimerNs = 200 * kNsPerMs;
// A new rail without a hello of the peer's link for this long does not work.
constexpr int64_t kHelloNs = 2 * kNsPerSecond;
// How many of the peer's kRailLost for unknown rails are kept until the hello of their rail comes. The
// numbers ascend, so the smallest ones go first: rails of long ago send no hello any more.
constexpr size_t kMostUnseen = 256;
// After the peer has closed a rail in order all others are about to follow. A link waits this long for a new
// rail then, and not LinkOptions::wait_ns.
constexpr int64_t kEndNs = kNsPerSecond;

// Ports are left out: a rail that is dialled again has another one.
bool same_path(const RailStatus& a, const RailStatus& b) {
  return host_of(a.local_address) == host_of(b.local_address) &&
         host_of(a.remote_address) == host_of(b.remote_address);
}

// The counters of a rail continue in the one that takes its place. Values that describe the present are not
// taken over: the state, the bytes in flight and the speed.
void take_over(RailStatus& rail, const RailStatus& old) {
  rail.bytes_out += old.bytes_out;
  rail.bytes_in += old.bytes_in;
  rail.writes_out += old.writes_out;
  rail.writes_in += old.writes_in;
  rail.messages_out += old.messages_out;
  rail.messages_in += old.messages_in;
  rail.bytes_resent += old.bytes_resent;
  rail.losses += old.losses;
  rail.corrupted += old.corrupted;
  if (rail.last_error.empty()) rail.last_error = old.last_error;
}

}  // namespace

void Link::add_rail(Connection* connection, std::unique_ptr<NicShare::Lane> lane) {
  const Tear tear(state_->torn);
  State& state = *state_;
  state.rails.push_back(
      std::make_unique<Rail>(connection, std::move(lane), state.next_rail++, state.options.now()));
  Rail& rail = *state.rails.back();
  if (state.phase != State::Phase::kUp) {
    // Its kClosed is awaited like that of the others. After on_down() it only takes the rail off the list.
    connection->close();
    return;
  }
  state.hello_until_ns = std::min(state.hello_until_ns, rail.added_ns() + kHelloNs);
  state.send_on(rail, NoticeKind::kHello, 0,
                encode(HelloBody{state.number, state.peer_number, rail.number()}));
}

void Link::drop_rail(const Connection* connection, const Status& reason) {
  const Tear tear(state_->torn);
  Rail* rail = state_->rail_of(connection);
  if (rail != nullptr && rail->connection() != nullptr && state_->phase == State::Phase::kUp)
    state_->give_up(*rail, reason);
}

void Link::drop_rails(const Status& reason) {
  const Tear tear(state_->torn);
  // A copy, so that nothing that give_up() starts can change the list while it is iterated over.
  std::vector<Rail*> up;
  for (const auto& rail : state_->rails) {
    if (rail->up()) up.push_back(rail.get());
  }
  for (Rail* rail : up) {
    if (state_->phase == State::Phase::kUp) state_->give_up(*rail, reason);
  }
}

// The cases of a hello, by what it says about the two links:
//   - The peer means another link here than this one: ignored.
//   - The hello is of another link than the one that this link is connected with: the peer has ended that
//     one, and so this link ends.
//   - The two links mean each other, or do not know each other yet: the rail comes up.
void Link::State::on_hello(Rail& rail, std::span<const std::byte> body) {
  const auto hello = decode_hello(body);
  if (!hello || rail.peer_number)
    return start_closing({Code::kLink, rail.describe() + " closed: malformed hello"});
  // The peer means a predecessor of this link. Our hello shows it that the predecessor has ended, and the
  // peer's link ends with this rail. Closing the rail here could lose that hello. If the peer does nothing,
  // the rail is given up when the time for its hello is over.
  if (hello->peer_link != 0 && hello->peer_link != number) return;
  if (peer_number != 0 && hello->link != peer_number) {
    return start_closing({Code::kLink, "the peer has given this link up and begun a new one"});
  }
  peer_number = hello->link;
  rail.peer_number = hello->rail;
  // The peer lost this rail before its hello was read here. Nothing was written on it from here, so that
  // nothing can have come. If it came up, it would take fragments, and they would wait for a kRailLost that
  // has come already.
  if (lost_unseen.erase(hello->rail) > 0) {
    rail.peer_received = 0;
    return give_up(rail, {Code::kLink, "the peer lost it"});
  }
  rail.status().state = RailStatus::State::kUp;
  const auto known = std::find_if(lost.begin(), lost.end(),
                                  [&](const RailStatus& old) { return same_path(old, rail.status()); });
  if (known != lost.end()) {
    take_over(rail.status(), *known);
    lost.erase(known);
  }
  // From here on the rail may pull fragments; the link does not wait for a rail any more.
  had_rail = true;
  wait_until_ns = kNeverNs;
  observer.on_rail_up(self, *rail.connection(), rail.status());
  if (notice_rail == nullptr && phase == Phase::kUp && rail.up()) choose_notice_rail();
}

// Takes the first rail that is up, the one that was added first, and sends every notice on it that the peer
// has not acknowledged. The receiver drops those that came before.
void Link::State::choose_notice_rail() {
  notice_rail = nullptr;
  const auto chosen = std::find_if(rails.begin(), rails.end(), [](const auto& rail) { return rail->up(); });
  if (chosen == rails.end()) return;
  notice_rail = chosen->get();
  // send_on() may find this rail dead, too. Giving it up appends a notice and comes back here for the next
  // rail, which then sends the whole queue. So this loop ends as soon as the rail is not the chosen one.
  for (size_t i = 0; i < notices.size() && notice_rail == chosen->get(); ++i) {
    const Numbered notice = notices[i];
    send_on(*notice_rail, notice.kind, notice.number, notice.body);
    if (notice_rail == nullptr) return;
  }
}

// `given_up` is set first: use_no_more() sends and calls the observer, and may come back here for the same
// rail.
void Link::State::give_up(Rail& rail, const Status& why) {
  if (rail.given_up || rail.connection() == nullptr) return;
  rail.given_up = why;
  Connection* connection = rail.connection();
  use_no_more(rail, why.message());
  connection->abandon();
}

// The steps: mark the rail as down, choose another rail for notices, post kRailLost there, report to the
// observer. The count in kRailLost is final, as on_written() counts nothing on a rail that is down.
void Link::State::use_no_more(Rail& rail, const std::string& why) {
  const bool was_up = rail.up();
  rail.status().state = RailStatus::State::kDown;
  if (!peer_ends) rail.status().last_error = why;
  last_loss = rail.describe() + ": " + why;
  if (notice_rail == &rail) choose_notice_rail();
  // This also goes for a rail on which the peer's hello has not come: the peer may have received ours and
  // sent fragments.
  if (peer_number != 0) post(NoticeKind::kRailLost, encode(RailLostBody{rail.number(), rail.received()}));
  if (!was_up) return;
  if (!peer_ends) ++rail.status().losses;
  observer.on_rail_down(self, *rail.connection(), rail.status(), peer_ends ? "" : why);
}

// kClosed of a rail, after a loss that this end noticed before (given_up) or as the first sign of it.
void Link::State::on_closed(Rail& rail, const Status& why) {
  const std::string end = why.is_ok() ? "the peer closed it" : why.message();
  // 1. If it is news, stop using the rail. Success means that the peer closed it in order, as a link does
  //    that ends.
  if (phase == Phase::kUp && !rail.given_up) {
    if (why.is_ok()) peer_ends = true;
    use_no_more(rail, end);
  }
  rail.on_closed();
  // 2. A link that is ending counts its connections out, and resends nothing.
  if (phase != Phase::kUp) {
    forget(rail);
    return report_down_if_closed();
  }
  // 3. Otherwise settle the rail, if the peer's count has come; else on_rail_lost() settles it.
  settle(rail);
  // 4. If the peer ends the link in order, end it here when the last connection is gone. If no rail is up any
  //    more, start the wait for another one. A link that never had a rail has the dialer's own time limit.
  const bool any = std::any_of(rails.begin(), rails.end(),
                               [](const auto& other) { return other->connection() != nullptr; });
  if (peer_ends && !any) {
    start_closing({Code::kLink, last_loss});
    return report_down_if_closed();
  }
  if (rails_up() > 0 || wait_until_ns != kNeverNs || !had_rail) return;
  wait_until_ns = options.now() + (peer_ends ? std::min(kEndNs, options.wait_ns) : options.wait_ns);
}

void Link::State::on_rail_lost(const RailLostBody& word) {
  const auto found = std::find_if(rails.begin(), rails.end(),
                                  [&](const auto& rail) { return rail->peer_number == word.rail; });
  if (found == rails.end()) {
    // Either nothing was under way on the rail, and it is settled and forgotten here. Or its hello is still
    // to come, as this notice took another rail: on_hello() looks into lost_unseen.
    lost_unseen.insert(word.rail);
    if (lost_unseen.size() > kMostUnseen) lost_unseen.erase(lost_unseen.begin());
    return;
  }
  Rail& rail = **found;
  // The peer cannot take back what it acknowledged, nor have received what was never written.
  if (word.received < rail.settled() || word.received > rail.written()) {
    return start_closing({Code::kLink, rail.describe() + " closed: the peer claims what cannot have come"});
  }
  rail.peer_received = word.received;
  give_up(rail, {Code::kLink, "the peer lost it"});
  settle(rail);
}

// Waits for both: kClosed of this end's connection, since a backend may read a fragment's memory until then;
// and the peer's count, unless nothing is under way. Fragments leave the book in order; those below the count
// have arrived.
void Link::State::settle(Rail& rail) {
  if (rail.connection() != nullptr) return;
  if (!rail.peer_received && !rail.idle()) return;
  while (!rail.idle() && phase == Phase::kUp) {
    const bool came = rail.settled() < *rail.peer_received;
    Outbox::Fragment fragment = rail.take_front();
    if (came) {
      arrived(fragment);
    } else {
      rail.status().bytes_resent += fragment.header.bytes();
      outbox.put_back(std::move(fragment));
    }
  }
  if (rail.peer_number) remember(rail);
  forget(rail);
  pump();
}

// The caller may still hold a reference to the rail, so it is freed by flush() only.
void Link::State::forget(const Rail& rail) {
  const auto found =
      std::find_if(rails.begin(), rails.end(), [&](const auto& held) { return held.get() == &rail; });
  done_rails.push_back(std::move(*found));
  rails.erase(found);
}

// The successor may be there already: it was dialled while this rail waited for the peer's count.
void Link::State::remember(const Rail& rail) {
  const auto successor = std::find_if(rails.begin(), rails.end(), [&](const auto& other) {
    return other.get() != &rail && other->peer_number && same_path(other->status(), rail.status());
  });
  if (successor != rails.end()) return take_over((*successor)->status(), rail.status());
  const auto known = std::find_if(lost.begin(), lost.end(),
                                  [&](const RailStatus& old) { return same_path(old, rail.status()); });
  if (known != lost.end()) return take_over(*known, rail.status());
  lost.push_back(rail.status());
}

void Link::State::watch_progress() {
  if (next_look_ns == kNeverNs && rails_up() > 1) next_look_ns = options.now() + kLookNs;
}

// The patience is what acknowledgements ordinarily take on this connection (Rail::round_ns()), at least
// link.stall_ms and at most ten times that. While others between the same NICs make progress, it is ten times
// link.stall_ms or 1 s, whichever is longer. If others made progress until this rail fell silent, it is the
// time of TCP's timer and of an acknowledgement before and after it.
int64_t Link::State::patience_ns(const Rail& rail, int64_t now) const {
  const int64_t most = kPatientTimes * options.stall_ns;
  const int64_t patience = std::clamp(rail.round_ns(), options.stall_ns, most);
  if (rail.others_move(now - patience)) return std::max(most, kBesideOthersNs);
  return rail.others_move(rail.silent_since_ns() - patience) ? kTimerNs + 2 * patience : patience;
}

// A rail is given up if four things hold: something is under way on it, it was pinged, nothing has moved on
// it for its patience, and the peer was heard on another rail after the time of the ping. The last one tells
// a rail that fails from a peer that does not run: a peer that is heard nowhere is slow, and no rail is given
// up for that. So a link with one rail has nothing to look for, and its rail ends by TCP's own timeout.
void Link::State::look_for_silence(int64_t now) {
  next_look_ns = kNeverNs;
  if (rails_up() < 2) return;
  bool waiting = false;
  bool ping = false;
  std::vector<Rail*> looked;  // those that are up at the begin; some may be given up in the loops below
  for (const auto& rail : rails) {
    if (rail->up()) looked.push_back(rail.get());
  }
  for (Rail* rail : looked) {
    if (!rail->up()) continue;  // lost in this loop
    const bool silent = rail->silent(now);
    waiting |= rail->outstanding();
    if (!silent) continue;
    const int64_t since = rail->silent_since_ns();
    if (!rail->pinged && now - since >= kPingNs) {
      rail->pinged = ping = true;
      send_on(*rail, NoticeKind::kPing, 0, {});
      continue;
    }
    const bool heard_elsewhere = std::any_of(looked.begin(), looked.end(), [&](const Rail* other) {
      return other != rail && other->up() && other->heard_ns() >= since + kPingNs;
    });
    if (rail->pinged && now - since >= patience_ns(*rail, now) && heard_elsewhere) {
      give_up(*rail,
              {Code::kLink, "nothing moves on it (for " + std::to_string((now - since) / kNsPerMs) + " ms)"});
    }
  }
  // The other rails are pinged as well, so that the peer is heard on every rail that works: without it an
  // idle rail would not show that the peer runs.
  for (Rail* rail : looked) {
    if (ping && rail->up() && !rail->pinged) send_on(*rail, NoticeKind::kPing, 0, {});
  }
  if (waiting && rails_up() > 1) next_look_ns = now + kLookNs;
}

void Link::on_time() {
  const Tear tear(state_->torn);
  State& state = *state_;
  const int64_t now = state.options.now();
  if (state.phase != State::Phase::kUp) return;
  if (now >= state.wait_until_ns) {
    state.start_closing({Code::kLink, state.last_loss + "; no other rail came up"});
    return state.report_down_if_closed();
  }
  if (now >= state.hello_until_ns) state.give_up_greetings(now);
  if (now >= state.next_look_ns) state.look_for_silence(now);
  state.pump();
}

int64_t Link::next_time() const {
  return std::min({state_->wait_until_ns, state_->next_look_ns, state_->hello_until_ns});
}

// Gives up the new rails whose time is over, and computes the time of the next one.
void Link::State::give_up_greetings(int64_t now) {
  hello_until_ns = kNeverNs;
  for (const auto& rail : rails) {
    if (rail->status().state != RailStatus::State::kGreeting || rail->given_up) continue;
    if (now >= rail->added_ns() + kHelloNs) {
      give_up(*rail, {Code::kLink, "no message of the peer's link came on it"});
    } else {
      hello_until_ns = std::min(hello_until_ns, rail->added_ns() + kHelloNs);
    }
  }
}

}  // namespace hdt::transport
