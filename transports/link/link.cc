// link.cc: sends and receives (see link.h). Its parts are the outbox (what is to be sent), the rails (where
// it goes) and the arrivals (what has come).
//
// The way of a write: write() puts it into the outbox, and pump() hands its fragments to rails, the best rail
// first, until no rail has room. The backend reports each fragment sent (on_sent()), and a count in any
// fragment or notice of the peer acknowledges it (acknowledge()); either may free the write's memory. An
// acknowledgement makes room, so every completion ends with pump().
//
// Control messages take another way: they are numbered, kept in `notices` until acknowledged, and sent on one
// rail (post()).
#include "transports/link/link.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "transports/link/link_state.h"

namespace hdt::transport {

namespace {

LinkOptions sane(LinkOptions options) {
  options.fragment_bytes = std::clamp(options.fragment_bytes, kMinFragmentBytes, kMaxFragmentBytes);
  return options;
}

// The number of a link. Never 0, which stands for "none yet" in a hello.
uint64_t random_number() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace

Link::State::State(Link& link, LinkObserver& watcher, LinkOptions with)
    : self(link),
      observer(watcher),
      options(sane(std::move(with))),
      outbox(options.fragment_bytes),
      number(random_number()) {}

Link::Link(LinkObserver& observer, LinkOptions options)
    : state_(std::make_unique<State>(*this, observer, std::move(options))) {}

Link::~Link() = default;

Status Link::write(const WriteRequest& request) {
  const Tear tear(state_->torn);
  // The sum of offset and length must not overflow where the receiver computes the fragments' places.
  if (request.bytes > kMaxLinkWriteBytes || request.offset > UINT64_MAX - request.bytes ||
      (request.bytes > 0 && request.data == nullptr)) {
    return {Code::kInvalidArgument, "a write of " + std::to_string(request.bytes) + " bytes at offset " +
                                        std::to_string(request.offset) + " is not possible on a link"};
  }
  if (state_->phase != State::Phase::kUp) return {Code::kLink, state_->reason.message()};
  state_->outbox.push(request, state_->rails_up(), state_->most_bytes_of_a_fragment());
  state_->pump();
  return Status::ok();
}

Status Link::send(std::span<const std::byte> message) {
  if (message.empty() || message.size() > kMaxLinkMessageBytes) {
    return {Code::kInvalidArgument, "a control message has 1 to " + std::to_string(kMaxLinkMessageBytes) +
                                        " bytes, not " + std::to_string(message.size())};
  }
  if (state_->phase != State::Phase::kUp) return {Code::kLink, state_->reason.message()};
  const Tear tear(state_->torn);
  state_->post(NoticeKind::kMessage, {message.begin(), message.end()});
  return Status::ok();
}

void Link::on_completion(const Completion& completion) {
  const Tear tear(state_->torn);
  Rail* rail = state_->rail_of(completion.connection);
  if (rail == nullptr) return;
  switch (completion.kind) {
    case Completion::Kind::kConnected:
    case Completion::Kind::kAccepted:
    case Completion::Kind::kReady:
      break;  // rails are connected when they are added
    case Completion::Kind::kSent:
      state_->on_sent(*rail, completion);
      break;
    case Completion::Kind::kWritten:
      state_->on_written(*rail, completion);
      break;
    case Completion::Kind::kMessage:
      state_->on_notice(*rail, completion.message);
      break;
    case Completion::Kind::kClosed:
      state_->on_closed(*rail, completion.error);
      break;
  }
  state_->pump();
}

void Link::flush() {
  const Tear tear(state_->torn);
  // Nothing of this link is on the call stack any more that could use them.
  state_->done_rails.clear();
  // Messages sent since the completions came have acknowledged most of it already.
  for (const auto& rail : state_->rails) {
    if (rail->up() && rail->owes(state_->alone(*rail)))
      state_->send_on(*rail, NoticeKind::kAcknowledge, 0, {});
  }
}

void Link::close(const Status& reason) {
  const Tear tear(state_->torn);
  if (state_->phase != State::Phase::kUp) return;
  state_->start_closing(reason);
  state_->report_down_if_closed();  // without a connection no kClosed would come to do it
}

bool Link::up() const { return state_->phase == State::Phase::kUp && state_->rails_up() > 0; }
bool Link::down() const { return state_->phase == State::Phase::kDown; }
bool Link::torn() const { return state_->torn; }
bool Link::peer_ended() const { return state_->peer_ends; }
size_t Link::pending_writes() const { return state_->outbox.size(); }
uint64_t Link::queued_bytes() const { return state_->outbox.queued_bytes(); }

bool Link::settled() const { return state_->outbox.empty(); }

uint64_t Link::written() const { return state_->outbox.written(); }
bool Link::arrived(uint64_t writes) const { return state_->outbox.arrived() >= writes; }

uint64_t Link::last_message() const { return state_->last_notice; }
bool Link::heard(uint64_t message) const {
  return state_->notices.empty() || state_->notices.front().number > message;
}

// A peer answers a ping at once, with an acknowledgement of all that has come. Loops that send run by index,
// as a failure calls the observer.
void Link::hurry() {
  const Tear tear(state_->torn);
  for (size_t i = 0; i < state_->rails.size(); ++i) {
    Rail& rail = *state_->rails[i];
    if (rail.up() && !rail.idle()) state_->send_on(rail, NoticeKind::kPing, 0, {});
  }
}

void Link::ping() {
  const Tear tear(state_->torn);
  for (size_t i = 0; i < state_->rails.size(); ++i) {
    Rail& rail = *state_->rails[i];
    if (rail.up()) state_->send_on(rail, NoticeKind::kPing, 0, {});
  }
}

std::vector<RailStatus> Link::rails() const {
  std::vector<RailStatus> list;
  const int64_t now = state_->options.now();
  for (const auto& rail : state_->rails) {
    rail->look_at_nic(now);
    list.push_back(rail->status());
  }
  list.insert(list.end(), state_->lost.begin(), state_->lost.end());
  return list;
}

Rail* Link::State::rail_of(const Connection* connection) {
  for (const auto& rail : rails) {
    if (rail->connection() == connection) return rail.get();
  }
  return nullptr;
}

size_t Link::State::rails_up() const {
  return static_cast<size_t>(
      std::count_if(rails.begin(), rails.end(), [](const auto& rail) { return rail->up(); }));
}

// The fragment size is chosen when a write is queued, before it is known which rail takes which fragment. So
// it is what the slowest rail carries in kFragmentNs: then no rail delays the end of a write, or another
// class, by more. Rails that are alone and rails of unknown speed do not count. docs/design/link.md has the
// measurements behind 0.5 ms.
uint64_t Link::State::most_bytes_of_a_fragment() const {
  constexpr double kFragmentNs = 0.5e6;
  const int64_t now = options.now();
  double slowest = 0;  // ns a byte
  for (const auto& rail : rails) {
    if (rail->up() && !alone(*rail)) slowest = std::max(slowest, rail->path_ns_per_byte(now));
  }
  return slowest == 0 ? options.fragment_bytes : static_cast<uint64_t>(kFragmentNs / slowest);
}

// The rail that would be done with the next fragment first, by what is under way on it and its latest speed;
// the first of equals. A rail of unknown speed is taken as fast as the fastest known one, so that it is
// tried. Asking has_turn() notes the class as waiting if another one goes first.
Rail* Link::State::best_rail(int64_t now) {
  const bool alone = rails_up() == 1;
  double fastest = 0;  // ns per byte, the minimum of those known
  for (const auto& rail : rails) {
    const double known = rail->up() ? rail->known_ns_per_byte(now) : 0;
    if (known > 0 && (fastest == 0 || known < fastest)) fastest = known;
  }
  if (fastest == 0) fastest = 1;  // no speed is known: any figure compares by what is under way
  Rail* best = nullptr;
  for (const auto& rail : rails) {
    if (!rail->has_room(alone) || !rail->has_turn(now)) continue;
    if (best == nullptr ||
        rail->load(kMinFragmentBytes, fastest, now) < best->load(kMinFragmentBytes, fastest, now))
      best = rail.get();
  }
  return best;
}

void Link::State::pump() {
  if (phase != Phase::kUp || !outbox.has_fragment()) return;
  const int64_t now = options.now();
  while (outbox.has_fragment() && hand_over(now)) {
  }
}

// A rail that refuses a fragment is dead. The fragment goes back first, so that it is first in line when the
// other rails are asked.
bool Link::State::hand_over(int64_t now) {
  Rail* rail = best_rail(now);
  if (rail == nullptr) return false;
  Outbox::Fragment fragment = outbox.pull();
  if (Status written = rail->write(fragment, options.checksum, now); !written.is_ok()) {
    outbox.put_back(std::move(fragment));
    give_up(*rail, written);
  }
  watch_progress();
  return true;
}

// The owner has cleared all wishes before (NicShare::forget_wishes()). The NICs then know every class that
// waits before any link takes its turn.
void Link::wants_turn() const {
  if (state_->phase != State::Phase::kUp || !state_->outbox.has_fragment()) return;
  const bool alone = state_->rails_up() == 1;
  for (const auto& rail : state_->rails) {
    if (rail->has_room(alone)) rail->wants_turn();
  }
}

bool Link::take_turn() {
  const Tear tear(state_->torn);
  return state_->phase == State::Phase::kUp && state_->outbox.has_fragment() &&
         state_->hand_over(state_->options.now());
}

void Link::State::on_sent(Rail& rail, const Completion& completion) {
  // After a failure kClosed follows, which says why.
  if (phase != Phase::kUp || !completion.error.is_ok()) return;
  Outbox::Fragment* fragment = rail.on_handed_over();
  if (fragment != nullptr) handed_over(*fragment);
}

// The mark in the fragment makes it count once: a fragment that was reported sent, lost and sent again is
// reported sent again.
void Link::State::handed_over(Outbox::Fragment& fragment) {
  if (std::exchange(fragment.handed_over, true)) return;
  if (const auto token = outbox.on_handed_over(fragment)) observer.on_sent(self, *token);
}

void Link::State::arrived(const Outbox::Fragment& fragment) {
  Outbox::Fragment whole = fragment;
  handed_over(whole);  // the acknowledgement may come before the backend's report
  if (const auto token = outbox.on_arrived(fragment)) observer.on_sent(self, *token);
}

// A fragment was placed by the backend. The order of the steps matters:
void Link::State::on_written(Rail& rail, const Completion& completion) {
  // 1. After this end has given a rail up nothing of it counts any more. The count that kRailLost carries is
  //    final: the peer sends everything above it again.
  if (phase != Phase::kUp || !rail.up()) return;
  rail.heard(options.now());
  // 2. Check the header and the payload. A wrong checksum is the network's fault: the rail is given up, and
  //    the fragment is sent again, as it was not counted. Anything else that is wrong is the peer's fault and
  //    ends the link.
  const Result<FragmentHeader> parsed = to_fragment(completion.immediate, completion.bytes);
  if (!parsed.is_ok())
    return start_closing({Code::kLink, rail.describe() + " closed: " + parsed.status().message()});
  const FragmentHeader& fragment = parsed.value();
  if (fragment.magic == kCheckedFragmentMagic &&
      checksum_of(fragment, completion.message) != fragment.checksum) {
    ++rail.status().corrupted;
    return give_up(rail, {Code::kLink, "a fragment came with a wrong checksum"});
  }
  // 3. Count it.
  const Result<bool> complete = arrivals.add(fragment);
  if (!complete.is_ok()) {
    return start_closing({Code::kLink, rail.describe() + " closed: " + complete.status().message()});
  }
  rail.on_fragment(completion.bytes, fragment.message_bytes > kCopiedWriteBytes, options.now());
  // 4. Report the write before anything is sent. Whatever is sent from now on acknowledges this fragment, and
  //    the observer must have recorded the write by then: after a restart of the daemon its record must hold
  //    everything that the peer counts as arrived.
  if (complete.value()) observer.on_arrived(self, fragment.header, fragment.message_bytes);
  // 5. Take the acknowledgement that the header carries. The observer may have closed the link or lost the
  //    rail.
  if (phase == Phase::kUp && !rail.given_up) (void)acknowledge(rail, fragment.received, fragment.received_at);
}

// The loop looks at the phase after each fragment: arrived() calls the observer, which may close the link.
bool Link::State::acknowledge(Rail& rail, uint32_t received, Stamp at) {
  const auto fresh = rail.acknowledged(received, at, options.now());
  if (!fresh) {
    start_closing({Code::kLink, rail.describe() + " closed: the peer acknowledges what was not sent"});
    return false;
  }
  for (uint64_t i = 0; i < *fresh && phase == Phase::kUp; ++i) arrived(rail.take_front());
  return phase == Phase::kUp;
}

void Link::State::acknowledge_notices(uint64_t up_to) {
  while (!notices.empty() && notices.front().number <= up_to) notices.pop_front();
}

// Everything that is malformed ends the link: a peer that sends it does not follow this protocol, and no
// guess about what it meant is safe.
void Link::State::on_notice(Rail& rail, std::span<const std::byte> message) {
  if (phase != Phase::kUp || rail.given_up || rail.connection() == nullptr) return;
  const auto malformed = [&](const char* what) {
    start_closing({Code::kLink, rail.describe() + " closed: malformed " + what});
  };
  rail.heard(options.now());
  ++rail.status().messages_in;
  const auto head = decode_head(message);
  if (!head) return malformed("notice");
  const auto body = message.subspan(sizeof(NoticeHead));
  // The counts of a hello are not looked at: the peer's link may mean the predecessor of this link.
  if (head->kind == NoticeKind::kHello) return on_hello(rail, body);
  if (head->notices > last_notice) return malformed("notice");
  if (!rail.up()) return malformed("beginning of a rail");
  acknowledge_notices(head->notices);
  if (!acknowledge(rail, head->received, head->received_at)) return;
  if (head->kind == NoticeKind::kPing) return send_on(rail, NoticeKind::kAcknowledge, 0, {});
  if (head->number != 0) on_numbered(rail, *head, body);
}

// Numbers make a notice count once and in order. A rail delivers in order, and after the loss of a rail the
// peer repeats from the first notice that it holds unacknowledged. So a number is either an old one or the
// next one.
void Link::State::on_numbered(Rail& rail, const NoticeHead& head, std::span<const std::byte> body) {
  rail.on_notice();
  if (head.number <= notices_received) return;  // came before, on a rail that was lost since
  if (head.number != notices_received + 1) {
    return start_closing({Code::kLink, rail.describe() + " closed: a notice is missing"});
  }
  ++notices_received;
  if (head.kind == NoticeKind::kRailLost) {
    const auto lost_rail = decode_rail_lost(body);
    if (!lost_rail)
      return start_closing({Code::kLink, rail.describe() + " closed: malformed notice of a lost rail"});
    return on_rail_lost(*lost_rail);
  }
  if (body.empty() || body.size() > kMaxLinkMessageBytes) {
    return start_closing({Code::kLink, rail.describe() + " closed: a control message of a wrong length"});
  }
  observer.on_message(self, body);
}

// Without a rail the notice stays queued; choose_notice_rail() sends it when a rail comes up.
void Link::State::post(NoticeKind kind, std::vector<std::byte> body) {
  const Numbered& notice = notices.emplace_back(Numbered{++last_notice, kind, std::move(body)});
  if (notice_rail == nullptr) return;
  send_on(*notice_rail, kind, notice.number, notice.body);
}

// If send() fails, the connection is dead and kClosed will follow. The rail is watched after every send, not
// only after data: if the only thing in flight is our acknowledgement and it is lost, the peer would wait for
// it forever.
void Link::State::send_on(Rail& rail, NoticeKind kind, uint64_t notice, std::span<const std::byte> body) {
  if (Status sent = rail.send(kind, notice, notices_received, body); !sent.is_ok()) {
    return give_up(rail, sent);
  }
  watch_progress();
}

// The first reason is kept. Rails that were given up are left out: they were reported to the observer, and
// their connections are closing.
void Link::State::start_closing(const Status& why) {
  if (phase != Phase::kUp) return;
  phase = Phase::kClosing;
  reason = why;
  next_look_ns = wait_until_ns = hello_until_ns = kNeverNs;
  notice_rail = nullptr;
  for (const auto& rail : rails) {
    if (rail->connection() == nullptr || rail->given_up) continue;
    if (rail->up()) {
      rail->status().state = RailStatus::State::kDown;
      observer.on_rail_down(self, *rail->connection(), rail->status(), "");
    }
    rail->connection()->close();
  }
}

// on_down() waits for every kClosed: until then a backend may read the memory of a pending write.
void Link::State::report_down_if_closed() {
  const bool closed =
      std::all_of(rails.begin(), rails.end(), [](const auto& rail) { return rail->connection() == nullptr; });
  if (phase != Phase::kClosing || !closed) return;
  phase = Phase::kDown;
  observer.on_down(self, reason);
}

}  // namespace hdt::transport
