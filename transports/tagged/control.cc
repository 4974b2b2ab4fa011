// control.cc: reads and writes the control socket; see control.h.
#include "transports/tagged/control.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "transports/tagged/frame.h"

namespace hdt::transport::tagged {

namespace {
// Signals are read in pieces, a bounded number for each event.
constexpr int kReadsPerEvent = 16;
constexpr size_t kReadBytes = 4096;
// The first byte and the length; the first byte and the HelloHeader.
constexpr size_t kMessageHead = 1 + sizeof(uint16_t);
constexpr size_t kHelloHead = 1 + sizeof(HelloHeader);
static_assert(kMaxMessageBytes <= UINT16_MAX);

// recv() has returned `n`: 0 at the end of the stream, negative with errno set.
Status ended_without_goodbye(ssize_t n) {
  return {Code::kLink, n < 0 ? std::strerror(errno) : "the peer closed without a goodbye (did it crash?)"};
}

Status malformed(const std::string& what) { return {Code::kLink, "malformed hello: " + what}; }
}  // namespace

// Both parts of a hello (base/codec.h). The header has the lengths of what follows it; whoever reads makes
// room for that first.
void fields(auto& c, Is<HelloHeader> auto& header) {
  c.number(header.magic, header.version, header.protocol_bytes, header.address_bytes, header.segment_bytes);
}
void fields(auto& c, Is<Hello> auto& hello) {
  c.bytes(hello.protocol);
  c.bytes(hello.address);
}

void Control::queue(const Writer& item) {
  outbox_.insert(outbox_.end(), item.written().begin(), item.written().end());
}

void Control::push_message(std::span<const std::byte> message) {
  queue(Writer().number(Item::kMessage, static_cast<uint16_t>(message.size())).bytes(message));
}

void Control::push_hello(const Hello& hello) {
  HelloHeader header;
  header.protocol_bytes = static_cast<uint16_t>(hello.protocol.size());
  header.address_bytes = static_cast<uint32_t>(hello.address.size());
  header.segment_bytes = static_cast<uint32_t>(hello.segment_bytes);
  Writer writer;
  writer.number(Item::kHello);
  fields(writer, header);
  fields(writer, hello);
  queue(writer);
}

bool Control::flush() {
  while (!outbox_.empty()) {
    const ssize_t n = ::send(fd_.get(), outbox_.data(), outbox_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN || errno == EWOULDBLOCK;
    outbox_.erase(outbox_.begin(), outbox_.begin() + n);
  }
  return true;
}

// A signal must not overtake or split what is queued, so there is none while the outbox has bytes.
bool Control::signal(Signal signal) const {
  return outbox_.empty() &&
         ::send(fd_.get(), &signal, sizeof signal, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof signal;
}

Control::Input Control::read() {
  Input input;
  if (greeted_) {
    read_signals(input);
  } else {
    read_word(input);
  }
  return input;
}

std::span<const std::byte> Control::receive(std::span<std::byte> room, Input& input) const {
  ssize_t n = 0;
  do {
    n = ::recv(fd_.get(), room.data(), room.size(), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n > 0) return room.first(static_cast<size_t>(n));
  if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) {
    input.ended = true;
    input.reason = ended_without_goodbye(n);
  }
  return {};
}

// Reads no further than to the end of the item that has begun: never more than wanted_ bytes. The rest
// stays in the kernel, and the socket stays readable. It returns after each event of the handshake.
void Control::read_word(Input& input) {
  std::array<std::byte, kReadBytes> piece;
  while (!input.ended && !input.here && !input.hello && input.message.empty()) {
    const auto came = receive(std::span(piece).first(std::min(piece.size(), wanted_ - inbox_.size())), input);
    if (came.empty()) return;
    inbox_.insert(inbox_.end(), came.begin(), came.end());
    if (inbox_.size() < wanted_) continue;
    if (Status status = look(input); !status.is_ok()) {
      input.ended = true;
      input.reason = std::move(status);
    }
  }
}

// The first byte decides. The states of an item are in wanted_: 1, the length of its head, the whole
// length.
Status Control::look(Input& input) {
  const std::byte kind = inbox_.front();
  if (std::exchange(expects_here_, false)) {
    if (kind != static_cast<std::byte>(Item::kHere))
      return malformed("the peer does not speak this protocol");
    input.here = true;
    inbox_.clear();
    return Status::ok();
  }
  if (kind == static_cast<std::byte>(Item::kMessage)) return look_at_message(input);
  if (kind == static_cast<std::byte>(Item::kHello)) return look_at_hello(input);
  if (kind != static_cast<std::byte>(Signal::kGoodbye))
    return malformed("the peer does not speak this protocol");
  input.ended = true;
  return Status::ok();
}

// Length and number are limited before a byte of the content is read.
Status Control::look_at_message(Input& input) {
  if (wanted_ == 1) {
    if (!admitted_ && ++messages_ > kMaxStrangerMessages)
      return {Code::kLink, "the peer sends messages, but not which daemon it is"};
    wanted_ = kMessageHead;
    return Status::ok();
  }
  if (wanted_ == kMessageHead) {
    Reader head(inbox_);
    head.get<Item>();
    const auto bytes = head.get<uint16_t>();
    if (bytes == 0 || bytes > (admitted_ ? kMaxMessageBytes : kMaxStrangerMessageBytes))
      return {Code::kLink, "malformed message of " + std::to_string(bytes) + " bytes"};
    wanted_ += bytes;
    return Status::ok();
  }
  input.message.assign(inbox_.begin() + kMessageHead, inbox_.end());
  inbox_.clear();
  wanted_ = 1;
  return Status::ok();
}

// Magic and version come first, then the lengths, before anything of that length is read.
Status Control::look_at_hello(Input& input) {
  if (!admitted_) return {Code::kLink, "the peer names an endpoint before it is known who it is"};
  if (wanted_ == 1) {
    wanted_ = kHelloHead;
    return Status::ok();
  }
  Reader reader(inbox_);
  reader.get<Item>();
  HelloHeader header;
  fields(reader, header);
  if (wanted_ == kHelloHead) {
    if (header.magic != kHelloMagic) return malformed("the peer does not speak this protocol");
    if (header.version != kHelloVersion) {
      return {Code::kVersion, "the peer speaks version " + std::to_string(header.version) +
                                  " of this protocol, this side " + std::to_string(kHelloVersion)};
    }
    if (header.segment_bytes < kMinSegmentBytes || header.segment_bytes > kMaxSegmentBytes) {
      return malformed("segments of " + std::to_string(header.segment_bytes) + " bytes");
    }
    if (header.protocol_bytes == 0 || header.protocol_bytes > kMaxProtocolBytes ||
        header.address_bytes == 0 || header.address_bytes > kMaxAddressBytes) {
      return malformed("lengths " + std::to_string(header.protocol_bytes) + " and " +
                       std::to_string(header.address_bytes));
    }
    wanted_ += header.protocol_bytes + header.address_bytes;
    return Status::ok();
  }
  Hello& hello = input.hello.emplace();
  hello.segment_bytes = header.segment_bytes;
  hello.protocol.resize(header.protocol_bytes);
  hello.address.resize(header.address_bytes);
  fields(reader, hello);
  inbox_ = {};
  greeted_ = true;
  return Status::ok();
}

// The signals have no content, so several are the same as one.
void Control::read_signals(Input& input) {
  std::array<std::byte, kReadBytes> piece;
  for (int i = 0; i < kReadsPerEvent; ++i) {
    const auto came = receive(piece, input);
    if (came.empty()) return;
    for (const std::byte byte : came) {
      switch (static_cast<Signal>(byte)) {
        case Signal::kRing:
        case Signal::kTick:
          input.rung = true;
          continue;
        case Signal::kGoodbye:
          input.ended = true;
          return;
      }
      input.ended = true;
      input.reason = {Code::kLink, "malformed signal " + std::to_string(std::to_integer<int>(byte))};
      return;
    }
  }
}

}  // namespace hdt::transport::tagged
