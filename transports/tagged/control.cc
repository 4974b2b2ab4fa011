// control.cc: see control.h.
#include "transports/tagged/control.h"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transports/tagged/frame.h"

namespace hdt::transport::tagged {

namespace {
constexpr int kReadsPerEvent = 16;
constexpr size_t kReadBytes = 4096;

Status malformed(const std::string& what) { return {Code::kLink, "malformed hello: " + what}; }
}  // namespace

void Control::push_hello(const Hello& hello) {
  HelloHeader header;
  header.protocol_bytes = static_cast<uint16_t>(hello.protocol.size());
  header.address_bytes = static_cast<uint32_t>(hello.address.size());
  header.segment_bytes = static_cast<uint32_t>(hello.segment_bytes);
  outbox_.resize(sizeof header + hello.protocol.size() + hello.address.size());
  std::memcpy(outbox_.data(), &header, sizeof header);
  std::memcpy(outbox_.data() + sizeof header, hello.protocol.data(), hello.protocol.size());
  std::memcpy(outbox_.data() + sizeof header + hello.protocol.size(), hello.address.data(),
              hello.address.size());
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

bool Control::signal(Signal signal) const {
  return outbox_.empty() &&
         ::send(fd_.get(), &signal, sizeof signal, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof signal;
}

Control::Input Control::read() {
  Input input;
  std::array<std::byte, kReadBytes> piece;
  for (int i = 0; i < kReadsPerEvent && !input.ended; ++i) {
    const ssize_t n = ::recv(fd_.get(), piece.data(), piece.size(), MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      input.ended = true;
      input.reason = {Code::kLink,
                      n < 0 ? std::strerror(errno) : "the peer closed without a goodbye (did it crash?)"};
      break;
    }
    inbox_.insert(inbox_.end(), piece.begin(), piece.begin() + n);
    if (Status status = parse(input); !status.is_ok()) {
      input.ended = true;
      input.reason = status;
    }
  }
  return input;
}

Status Control::parse(Input& input) {
  if (!greeted_) {
    HelloHeader header;
    if (inbox_.size() < sizeof header) return Status::ok();
    std::memcpy(&header, inbox_.data(), sizeof header);
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
    const size_t bytes = sizeof header + header.protocol_bytes + header.address_bytes;
    if (inbox_.size() < bytes) return Status::ok();
    const auto* text = reinterpret_cast<const char*>(inbox_.data() + sizeof header);
    Hello& hello = input.hello.emplace();
    hello.segment_bytes = header.segment_bytes;
    hello.protocol.assign(text, header.protocol_bytes);
    const auto address = inbox_.begin() + static_cast<ptrdiff_t>(sizeof header + header.protocol_bytes);
    hello.address.assign(address, address + static_cast<ptrdiff_t>(header.address_bytes));
    inbox_.erase(inbox_.begin(), inbox_.begin() + static_cast<ptrdiff_t>(bytes));
    greeted_ = true;
  }
  for (const std::byte byte : inbox_) {
    switch (static_cast<Signal>(byte)) {
      case Signal::kRing:
      case Signal::kTick:
        input.rung = true;
        continue;
      case Signal::kGoodbye:
        input.ended = true;
        return Status::ok();
    }
    return {Code::kLink, "malformed signal " + std::to_string(std::to_integer<int>(byte))};
  }
  inbox_.clear();
  return Status::ok();
}

}  // namespace hdt::transport::tagged
