// rdma_bandwidth.cc: measures how fast the rdma backend moves data between two addresses of this machine, for
// comparison with ib_write_bw in the same run of tools/rdma-vm. It is run by hand (docs/design/rdma.md).
//
//   rdma_bandwidth LOCAL REMOTE BYTES WRITES
//
// One thread polls both ends. It posts WRITES writes of BYTES bytes from one buffer to another, as many at a
// time as the window allows, until all are reported at both ends, and prints MB/s (10^6 bytes). Exit code: 0
// measured, 1 failed, 2 wrong usage.
#include <poll.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "transports/rdma/backend.h"

using namespace hdt::transport;

namespace {

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "rdma_bandwidth: %s\n", what.c_str());
  std::exit(1);
}

std::unique_ptr<Device> open(Backend& backend, const char* address) {
  DeviceInfo info;
  info.address = address;
  auto opened = backend.open(info);
  if (!opened.is_ok()) die(opened.status().to_string());
  return opened.take();
}

// The identity under which each end admits the other one, and grants memory to it.
constexpr PeerName kOther{{std::byte{1}}};

// One end, and counts of what its device has reported.
struct End {
  std::unique_ptr<Device> device;
  size_t ready = 0;    // connections that carry writes
  size_t sent = 0;     // own writes that are finished
  size_t written = 0;  // writes of the other end that were placed

  // Polls once and admits whoever connects. Any end of the connection is a failure here.
  void poll() {
    std::vector<Completion> completions;
    device->poll(completions);
    for (const Completion& completion : completions) {
      if (completion.kind == Completion::Kind::kClosed) die(completion.error.to_string());
      const bool met =
          completion.kind == Completion::Kind::kConnected || completion.kind == Completion::Kind::kAccepted;
      if (met && !completion.connection->admit(kOther).is_ok()) die("the other end is not admitted");
      ready += completion.kind == Completion::Kind::kReady;
      sent += completion.kind == Completion::Kind::kSent && completion.error.is_ok();
      written += completion.kind == Completion::Kind::kWritten;
    }
  }
};

// Sleeps until either device has something to do, and polls both.
void wait(End& a, End& b) {
  pollfd waits[2] = {{a.device->event_fd(), POLLIN, 0}, {b.device->event_fd(), POLLIN, 0}};
  if (::poll(waits, 2, 10'000) == 0) die("nothing happens for 10 s");
  a.poll();
  b.poll();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: rdma_bandwidth LOCAL REMOTE BYTES WRITES\n");
    return 2;
  }
  const size_t bytes = std::strtoull(argv[3], nullptr, 10);
  const size_t writes = std::strtoull(argv[4], nullptr, 10);
  const auto backend = rdma::make_backend(rdma::system_verbs());
  End a{open(*backend, argv[1])};
  End b{open(*backend, argv[2])};
  std::vector<std::byte> source(bytes, std::byte{0x5a});
  std::vector<std::byte> target(bytes);
  // The source is registered as well: the adapter reads it.
  const auto source_key = a.device->register_memory(source.data(), bytes, -1);
  const auto key = b.device->register_memory(target.data(), bytes, -1);
  if (!source_key.is_ok() || !key.is_ok()) die("cannot register memory");
  if (!b.device->grant(key.value(), kOther).is_ok()) die("cannot grant memory");
  const auto address = b.device->listen(0);
  if (!address.is_ok()) die(address.status().to_string());
  const auto connection = a.device->connect(address.value(), 5000);
  if (!connection.is_ok()) die(connection.status().to_string());
  while (a.ready == 0 || b.ready == 0) wait(a, b);

  size_t posted = 0;
  const auto started = std::chrono::steady_clock::now();
  while (a.sent < writes || b.written < writes) {
    while (posted < writes && connection.value()->write_window() > 0) {
      if (!connection.value()->write(source.data(), bytes, key.value(), 0, {}, ++posted).is_ok())
        die("write");
    }
    wait(a, b);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  if (std::memcmp(source.data(), target.data(), bytes) != 0)
    die("the bytes that arrived are not those that were sent");
  std::printf("%zu writes of %zu bytes: %.2f MB/s\n", writes, bytes,
              static_cast<double>(writes) * static_cast<double>(bytes) / seconds / 1e6);
  return 0;
}
