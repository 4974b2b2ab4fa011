// link.cc: see link.h. The parts: outbox (what is to be sent), rails (where it goes), arrivals (what has
// come).
#include "transports/link/link.h"

#include <algorithm>

#include "transports/link/arrivals.h"
#include "transports/link/outbox.h"
#include "transports/link/rail.h"

namespace hdt::transport {

struct Link::State {
  enum class Phase { kUp, kClosing, kDown };

  State(Link& link, LinkObserver& watcher, size_t chunk_bytes)
      : self(link), observer(watcher), outbox(chunk_bytes) {}

  Rail* rail_of(const Connection* connection);
  Rail* idlest_rail();
  void on_sent(Rail& rail, const Completion& completion);
  void on_written(Rail& rail, const Completion& completion);
  void on_closed(Rail& rail, const Status& reason);
  void start_closing(const Status& why);
  void report_down_if_closed();
  void pump();

  Link& self;
  LinkObserver& observer;
  Phase phase = Phase::kUp;
  Status reason;
  std::vector<std::unique_ptr<Rail>> rails;
  Outbox outbox;
  Arrivals arrivals;
  std::vector<std::vector<std::byte>> early_messages;  // sent before the first rail was there
};

Link::Link(LinkObserver& observer, size_t chunk_bytes)
    : state_(std::make_unique<State>(*this, observer,
                                     std::clamp(chunk_bytes, kMinChunkBytes, kMaxChunkBytes))) {}

Link::~Link() = default;

void Link::add_rail(Connection* connection) {
  state_->rails.push_back(std::make_unique<Rail>(connection));
  if (state_->phase != State::Phase::kUp) {
    // Its kClosed is awaited like that of the others; after on_down() it is only counted out.
    connection->close();
    return;
  }
  for (const auto& message : state_->early_messages) {
    if (Status sent = send(message); !sent.is_ok()) return close(sent);
  }
  state_->early_messages.clear();
  state_->pump();
}

Status Link::write(const WriteRequest& request) {
  if (request.bytes > kMaxLinkWriteBytes || request.offset > UINT64_MAX - request.bytes ||
      (request.bytes > 0 && request.data == nullptr)) {
    return {Code::kInvalidArgument, "a write of " + std::to_string(request.bytes) + " bytes at offset " +
                                        std::to_string(request.offset) + " is not possible on a link"};
  }
  if (state_->phase != State::Phase::kUp) return {Code::kLink, state_->reason.message()};
  state_->outbox.push(request);
  state_->pump();
  return Status::ok();
}

Status Link::send(std::span<const std::byte> message) {
  if (message.empty() || message.size() > kMaxMessageBytes) {
    return {Code::kInvalidArgument, "a control message has 1 to " + std::to_string(kMaxMessageBytes) +
                                        " bytes, not " + std::to_string(message.size())};
  }
  if (state_->phase != State::Phase::kUp) return {Code::kLink, state_->reason.message()};
  if (state_->rails.empty()) {
    state_->early_messages.emplace_back(message.begin(), message.end());
    return Status::ok();
  }
  // Always the same rail: that keeps them in order.
  return state_->rails.front()->send(message);
}

void Link::on_completion(const Completion& completion) {
  Rail* rail = state_->rail_of(completion.connection);
  if (rail == nullptr) return;
  switch (completion.kind) {
    case Completion::Kind::kConnected:
    case Completion::Kind::kAccepted:
      break;  // rails are connected when they are added
    case Completion::Kind::kSent:
      state_->on_sent(*rail, completion);
      break;
    case Completion::Kind::kWritten:
      state_->on_written(*rail, completion);
      break;
    case Completion::Kind::kMessage:
      rail->on_message();
      if (state_->phase == State::Phase::kUp) state_->observer.on_message(*this, completion.message);
      break;
    case Completion::Kind::kClosed:
      state_->on_closed(*rail, completion.error);
      break;
  }
  state_->pump();
}

void Link::pump() { state_->pump(); }

void Link::close(const Status& reason) {
  if (state_->phase != State::Phase::kUp) return;
  state_->start_closing(reason);
  state_->report_down_if_closed();
}

bool Link::up() const { return state_->phase == State::Phase::kUp && !state_->rails.empty(); }
bool Link::down() const { return state_->phase == State::Phase::kDown; }
size_t Link::pending_writes() const { return state_->outbox.size(); }

std::vector<RailStatus> Link::rails() const {
  std::vector<RailStatus> list;
  for (const auto& rail : state_->rails) list.push_back(rail->status());
  return list;
}

Rail* Link::State::rail_of(const Connection* connection) {
  for (const auto& rail : rails) {
    if (rail->connection() == connection) return rail.get();
  }
  return nullptr;
}

// The rail with room that has the fewest bytes under way; the first of equals.
Rail* Link::State::idlest_rail() {
  Rail* best = nullptr;
  for (const auto& rail : rails) {
    if (!rail->has_room()) continue;
    if (best == nullptr || rail->bytes_in_flight() < best->bytes_in_flight()) best = rail.get();
  }
  return best;
}

void Link::State::pump() {
  while (phase == Phase::kUp && outbox.has_chunk()) {
    Rail* rail = idlest_rail();
    if (rail == nullptr) return;
    if (Status written = rail->write(outbox.pull()); !written.is_ok()) {
      return start_closing({Code::kLink, rail->describe() + ": " + written.message()});
    }
  }
}

void Link::State::on_sent(Rail& rail, const Completion& completion) {
  // After a failure kClosed follows, which says why.
  if (phase != Phase::kUp || !completion.error.is_ok()) return;
  rail.on_chunk_sent();
  if (const auto token = outbox.on_sent(completion.token)) observer.on_sent(self, *token);
}

void Link::State::on_written(Rail& rail, const Completion& completion) {
  rail.on_chunk_arrived(completion.bytes);
  if (phase != Phase::kUp) return;
  const Result<ChunkHeader> chunk = to_chunk(completion.immediate, completion.bytes);
  const Result<bool> complete = chunk.is_ok() ? arrivals.add(chunk.value()) : Result<bool>(chunk.status());
  if (!complete.is_ok()) {
    return start_closing({Code::kLink, rail.describe() + " closed: " + complete.status().message()});
  }
  if (complete.value()) observer.on_arrived(self, chunk.value().header, chunk.value().message_bytes);
}

void Link::State::on_closed(Rail& rail, const Status& why) {
  const std::string end = why.is_ok() ? "the peer closed it" : why.message();
  rail.on_closed();
  start_closing({Code::kLink, rail.describe() + " closed: " + end});
  report_down_if_closed();
}

void Link::State::start_closing(const Status& why) {
  if (phase != Phase::kUp) return;
  phase = Phase::kClosing;
  reason = why;
  for (const auto& rail : rails) {
    if (rail->open()) rail->connection()->close();
  }
}

void Link::State::report_down_if_closed() {
  const bool closed = std::none_of(rails.begin(), rails.end(), [](const auto& rail) { return rail->open(); });
  if (phase != Phase::kClosing || !closed) return;
  phase = Phase::kDown;
  observer.on_down(self, reason);
}

}  // namespace hdt::transport
