// rail_loss.cc: rails that come, go and fall silent. When a rail is lost, each end tells the other over a
// surviving one how many chunks had come on it (a rail delivers in order, so that a number says it all), and
// only then sends again what had not: no chunk is ever placed twice, as its place may be in use for something
// newer.
#include <algorithm>

#include "base/address.h"
#include "transports/link/link_state.h"

namespace hdt::transport {

namespace {

constexpr int64_t kLookNs = 5 * kNsPerMs;
constexpr int64_t kPingNs = 6 * kNsPerMs;
// On a rail whose acknowledgements take long, what is under way is late, not lost; but not for ever.
constexpr int64_t kPatientTimes = 10;
// While other links' rails between the same NICs move, the NICs and the path work. What stands behind them is
// late, and what the NIC's queue has dropped TCP sends again by its timer: after 200 ms, and 400 more where
// it is dropped again. But not for ever: a path between two NICs can fail for one connection alone, too.
constexpr int64_t kBesideOthersNs = kNsPerSecond;
// A new rail on which the peer's link says nothing does not work.
constexpr int64_t kHelloNs = 2 * kNsPerSecond;
// Words of the peer on rails that are not known here, kept for their hellos: numbers ascend, and rails of
// long ago say none any more.
constexpr size_t kMostUnseen = 256;
// After the peer closed a rail in order all others are about to follow.
constexpr int64_t kEndNs = kNsPerSecond;

bool same_path(const RailStatus& a, const RailStatus& b) {
  return host_of(a.local_address) == host_of(b.local_address) &&
         host_of(a.remote_address) == host_of(b.remote_address);
}

// The counters of a rail go on in the one that takes its place.
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
    // Its kClosed is awaited like that of the others; after on_down() it is only counted out.
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
  std::vector<Rail*> up;
  for (const auto& rail : state_->rails) {
    if (rail->up()) up.push_back(rail.get());
  }
  for (Rail* rail : up) {
    if (state_->phase == State::Phase::kUp) state_->give_up(*rail, reason);
  }
}

void Link::State::on_hello(Rail& rail, std::span<const std::byte> body) {
  const auto hello = decode_hello(body);
  if (!hello || rail.peer_number)
    return start_closing({Code::kLink, rail.describe() + " closed: malformed hello"});
  // The peer takes this link for one that has ended. It hears from this end's hello that it has, and closes
  // the rail: to close it here could lose that hello. A peer that does not is given up when the time for its
  // hello is over.
  if (hello->peer_link != 0 && hello->peer_link != number) return;
  if (peer_number != 0 && hello->link != peer_number) {
    return start_closing({Code::kLink, "the peer has given this link up and begun a new one"});
  }
  peer_number = hello->link;
  rail.peer_number = hello->rail;
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
  had_rail = true;
  wait_until_ns = kNeverNs;
  observer.on_rail_up(self, *rail.connection(), rail.status());
  if (notice_rail == nullptr && phase == Phase::kUp && rail.up()) choose_notice_rail();
}

// What the peer has not acknowledged goes (again) on the rail that was up longest.
void Link::State::choose_notice_rail() {
  notice_rail = nullptr;
  const auto chosen = std::find_if(rails.begin(), rails.end(), [](const auto& rail) { return rail->up(); });
  if (chosen == rails.end()) return;
  notice_rail = chosen->get();
  // Giving this one up, too, would change the queue below.
  for (size_t i = 0; i < notices.size() && notice_rail == chosen->get(); ++i) {
    const Numbered notice = notices[i];
    send_on(*notice_rail, notice.kind, notice.number, notice.body);
    if (notice_rail == nullptr) return;
  }
}

void Link::State::give_up(Rail& rail, const Status& why) {
  if (rail.given_up || rail.connection() == nullptr) return;
  rail.given_up = why;
  Connection* connection = rail.connection();
  use_no_more(rail, why.message());
  connection->abandon();
}

void Link::State::use_no_more(Rail& rail, const std::string& why) {
  const bool was_up = rail.up();
  rail.status().state = RailStatus::State::kDown;
  if (!peer_ends) rail.status().last_error = why;
  last_loss = rail.describe() + ": " + why;
  if (notice_rail == &rail) choose_notice_rail();
  // Also of a rail on which the peer's hello has not come: the peer may have had ours, and used it.
  if (peer_number != 0) post(NoticeKind::kRailLost, encode(RailLostBody{rail.number(), rail.received()}));
  if (!was_up) return;
  if (!peer_ends) ++rail.status().losses;
  observer.on_rail_down(self, *rail.connection(), rail.status(), peer_ends ? "" : why);
}

void Link::State::on_closed(Rail& rail, const Status& why) {
  const std::string end = why.is_ok() ? "the peer closed it" : why.message();
  if (phase == Phase::kUp && !rail.given_up) {
    if (why.is_ok()) peer_ends = true;
    use_no_more(rail, end);
  }
  rail.on_closed();
  if (phase != Phase::kUp) {
    forget(rail);
    return report_down_if_closed();
  }
  settle(rail);
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
    // Nothing was under way on it, and it is settled already; or its hello is still to come, as this word
    // took another rail.
    lost_unseen.insert(word.rail);
    if (lost_unseen.size() > kMostUnseen) lost_unseen.erase(lost_unseen.begin());
    return;
  }
  Rail& rail = **found;
  if (word.received < rail.settled() || word.received > rail.written()) {
    return start_closing({Code::kLink, rail.describe() + " closed: the peer claims what cannot have come"});
  }
  rail.peer_received = word.received;
  give_up(rail, {Code::kLink, "the peer lost it"});
  settle(rail);
}

void Link::State::settle(Rail& rail) {
  if (rail.connection() != nullptr) return;
  if (!rail.peer_received && !rail.idle()) return;
  while (!rail.idle() && phase == Phase::kUp) {
    const bool came = rail.settled() < *rail.peer_received;
    Outbox::Chunk chunk = rail.take_front();
    if (came) {
      arrived(chunk);
    } else {
      rail.status().bytes_resent += chunk.header.bytes();
      outbox.put_back(std::move(chunk));
    }
  }
  if (rail.peer_number) remember(rail);
  forget(rail);
  pump();
}

void Link::State::forget(const Rail& rail) {
  const auto found =
      std::find_if(rails.begin(), rails.end(), [&](const auto& held) { return held.get() == &rail; });
  done_rails.push_back(std::move(*found));
  rails.erase(found);
}

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

// How long a silent rail is waited for.
int64_t Link::State::patience_ns(const Rail& rail, int64_t now) const {
  const int64_t most = kPatientTimes * options.stall_ns;
  const int64_t patience = std::clamp(rail.round_ns(), options.stall_ns, most);
  return rail.others_move(now - patience) ? std::max(most, kBesideOthersNs) : patience;
}

// A rail is given up when nothing has moved on it for so long although something is under way and it was
// pinged, while the peer was heard on another one after that: then it is the rail, not the peer.
void Link::State::look_for_silence(int64_t now) {
  next_look_ns = kNeverNs;
  if (rails_up() < 2) return;
  bool waiting = false;
  bool ping = false;
  std::vector<Rail*> looked;
  for (const auto& rail : rails) {
    if (rail->up()) looked.push_back(rail.get());
  }
  for (Rail* rail : looked) {
    if (!rail->up()) continue;
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
  // Rails on which nothing is under way are asked as well, so that the peer is heard where it can be.
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

void Link::State::give_up_greetings(int64_t now) {
  hello_until_ns = kNeverNs;
  for (const auto& rail : rails) {
    if (rail->status().state != RailStatus::State::kGreeting || rail->given_up) continue;
    if (now >= rail->added_ns() + kHelloNs) {
      give_up(*rail, {Code::kLink, "the peer's link says nothing on it"});
    } else {
      hello_until_ns = std::min(hello_until_ns, rail->added_ns() + kHelloNs);
    }
  }
}

}  // namespace hdt::transport
