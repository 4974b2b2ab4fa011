// link.cc: see link.h. The parts: outbox (what is to be sent), rails (where it goes), arrivals (what has
// come).
#include "transports/link/link.h"

#include <algorithm>
#include <cstring>
#include <random>

#include "transports/link/link_state.h"

namespace hdt::transport {

namespace {

LinkOptions sane(LinkOptions options) {
  options.chunk_bytes = std::clamp(options.chunk_bytes, kMinChunkBytes, kMaxChunkBytes);
  return options;
}

uint64_t random_number() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace

Link::State::State(Link& link, LinkObserver& watcher, LinkOptions with)
    : self(link),
      observer(watcher),
      options(sane(std::move(with))),
      outbox(options.chunk_bytes),
      number(random_number()) {}

Link::Link(LinkObserver& observer, LinkOptions options)
    : state_(std::make_unique<State>(*this, observer, std::move(options))) {}

Link::~Link() = default;

Status Link::write(const WriteRequest& request) {
  const Tear tear(state_->torn);
  if (request.bytes > kMaxLinkWriteBytes || request.offset > UINT64_MAX - request.bytes ||
      (request.bytes > 0 && request.data == nullptr)) {
    return {Code::kInvalidArgument, "a write of " + std::to_string(request.bytes) + " bytes at offset " +
                                        std::to_string(request.offset) + " is not possible on a link"};
  }
  if (state_->phase != State::Phase::kUp) return {Code::kLink, state_->reason.message()};
  state_->outbox.push(request, state_->rails_up(), state_->most_bytes_of_a_chunk());
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
  state_->done_rails.clear();
  for (const auto& rail : state_->rails) {
    if (rail->up() && rail->owes(state_->alone(*rail)))
      state_->send_on(*rail, NoticeKind::kAcknowledge, 0, {});
  }
}

void Link::close(const Status& reason) {
  const Tear tear(state_->torn);
  if (state_->phase != State::Phase::kUp) return;
  state_->start_closing(reason);
  state_->report_down_if_closed();
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
  for (const auto& rail : state_->rails) list.push_back(rail->status());
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

// Whichever rail takes a chunk: what the slowest one carries in kChunkNs, so that it delays the end of a
// write, or another class, by no more.
uint64_t Link::State::most_bytes_of_a_chunk() const {
  constexpr double kChunkNs = 0.5e6;
  const int64_t now = options.now();
  double slowest = 0;  // ns a byte
  for (const auto& rail : rails) {
    if (rail->up() && !alone(*rail)) slowest = std::max(slowest, rail->path_ns_per_byte(now));
  }
  return slowest == 0 ? options.chunk_bytes : static_cast<uint64_t>(kChunkNs / slowest);
}

// The rail with room that would be done with the next chunk first; the first of equals.
Rail* Link::State::best_rail(int64_t now) {
  const bool alone = rails_up() == 1;
  double fastest = 0;  // a new rail is tried as if it were as fast
  for (const auto& rail : rails) {
    const double known = rail->up() ? rail->known_ns_per_byte(now) : 0;
    if (known > 0 && (fastest == 0 || known < fastest)) fastest = known;
  }
  if (fastest == 0) fastest = 1;
  Rail* best = nullptr;
  for (const auto& rail : rails) {
    if (!rail->has_room(alone) || !rail->has_turn(now)) continue;
    if (best == nullptr ||
        rail->load(kMinChunkBytes, fastest, now) < best->load(kMinChunkBytes, fastest, now))
      best = rail.get();
  }
  return best;
}

void Link::State::pump() {
  if (phase != Phase::kUp || !outbox.has_chunk()) return;
  const int64_t now = options.now();
  while (outbox.has_chunk() && hand_over(now)) {
  }
}

bool Link::State::hand_over(int64_t now) {
  Rail* rail = best_rail(now);
  if (rail == nullptr) return false;
  Outbox::Chunk chunk = outbox.pull();
  if (Status written = rail->write(chunk, options.checksum, now); !written.is_ok()) {
    outbox.put_back(std::move(chunk));
    give_up(*rail, written);
  }
  watch_progress();
  return true;
}

void Link::wants_turn() const {
  if (state_->phase != State::Phase::kUp || !state_->outbox.has_chunk()) return;
  const bool alone = state_->rails_up() == 1;
  for (const auto& rail : state_->rails) {
    if (rail->has_room(alone)) rail->wants_turn();
  }
}

bool Link::take_turn() {
  const Tear tear(state_->torn);
  return state_->phase == State::Phase::kUp && state_->outbox.has_chunk() &&
         state_->hand_over(state_->options.now());
}

void Link::State::on_sent(Rail& rail, const Completion& completion) {
  // After a failure kClosed follows, which says why.
  if (phase != Phase::kUp || !completion.error.is_ok()) return;
  Outbox::Chunk* chunk = rail.on_handed_over();
  if (chunk != nullptr) handed_over(*chunk);
}

void Link::State::handed_over(Outbox::Chunk& chunk) {
  if (std::exchange(chunk.handed_over, true)) return;
  if (const auto token = outbox.on_handed_over(chunk)) observer.on_sent(self, *token);
}

void Link::State::arrived(const Outbox::Chunk& chunk) {
  Outbox::Chunk whole = chunk;
  handed_over(whole);  // where the backend has not said so yet
  if (const auto token = outbox.on_arrived(chunk)) observer.on_sent(self, *token);
}

void Link::State::on_written(Rail& rail, const Completion& completion) {
  // After giving a rail up nothing of it counts any more: the peer has been told, or will be, where it ended.
  if (phase != Phase::kUp || !rail.up()) return;
  rail.heard(options.now());
  const Result<ChunkHeader> parsed = to_chunk(completion.immediate, completion.bytes);
  if (!parsed.is_ok())
    return start_closing({Code::kLink, rail.describe() + " closed: " + parsed.status().message()});
  const ChunkHeader& chunk = parsed.value();
  if (chunk.magic == kCheckedChunkMagic && checksum_of(chunk, completion.message) != chunk.checksum) {
    ++rail.status().corrupted;
    return give_up(rail, {Code::kLink, "a chunk came with a wrong checksum"});
  }
  const Result<bool> complete = arrivals.add(chunk);
  if (!complete.is_ok()) {
    return start_closing({Code::kLink, rail.describe() + " closed: " + complete.status().message()});
  }
  rail.on_chunk(completion.bytes, chunk.message_bytes > kCopiedWriteBytes, options.now());
  // The observer first: whatever is sent from now on tells the peer that this has come, and who restarts
  // after a crash must know it then, too.
  if (complete.value()) observer.on_arrived(self, chunk.header, chunk.message_bytes);
  if (phase == Phase::kUp && !rail.given_up) (void)acknowledge(rail, chunk.received, chunk.received_at);
}

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
  // What it says of notices may be of the link that was here before this one.
  if (head->kind == NoticeKind::kHello) return on_hello(rail, body);
  if (head->notices > last_notice) return malformed("notice");
  if (!rail.up()) return malformed("beginning of a rail");
  acknowledge_notices(head->notices);
  if (!acknowledge(rail, head->received, head->received_at)) return;
  if (head->kind == NoticeKind::kPing) return send_on(rail, NoticeKind::kAcknowledge, 0, {});
  if (head->number != 0) on_numbered(rail, *head, body);
}

void Link::State::on_numbered(Rail& rail, const NoticeHead& head, std::span<const std::byte> body) {
  rail.on_notice();
  if (head.number <= notices_received) return;  // came on a rail that was lost, and again
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

void Link::State::post(NoticeKind kind, std::vector<std::byte> body) {
  const Numbered& notice = notices.emplace_back(Numbered{++last_notice, kind, std::move(body)});
  if (notice_rail == nullptr) return;
  send_on(*notice_rail, kind, notice.number, notice.body);
}

// A rail that refuses has died: its kClosed follows. Whatever was sent is watched: of chunks that came only
// this end's acknowledgement may be under way, and the peer, to which nothing is, waits for it.
void Link::State::send_on(Rail& rail, NoticeKind kind, uint64_t notice, std::span<const std::byte> body) {
  if (Status sent = rail.send(kind, notice, notices_received, body); !sent.is_ok()) {
    return give_up(rail, sent);
  }
  watch_progress();
}

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

void Link::State::report_down_if_closed() {
  const bool closed =
      std::all_of(rails.begin(), rails.end(), [](const auto& rail) { return rail->connection() == nullptr; });
  if (phase != Phase::kClosing || !closed) return;
  phase = Phase::kDown;
  observer.on_down(self, reason);
}

}  // namespace hdt::transport
