// backend_bandwidth.cc: measures how fast a backend moves data between two processes of this machine, over
// one connection or several. bench/backends compares it with iperf3, fi_pingpong and ucx_perftest;
// docs/design/transports.md has the results.
//
//   backend_bandwidth LOCAL REMOTE BYTES WRITES CONNECTIONS BACKEND [KEY=VALUE...]
//
// The program forks. The child opens a device at REMOTE, listens, and writes its address and region key to a
// pipe (Meeting). The parent opens a device at LOCAL, connects, and posts WRITES writes in all, each of BYTES
// bytes, in turn over the connections. It prints MB/s (10^6 bytes) from the first write to the last kSent,
// and closes. The child checks the number of writes and every byte. Exit code: 0 measured, 1 failed, 2 wrong
// usage.
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "transports/loader/loader.h"

using namespace hdt::transport;

namespace {

constexpr int kWaitMs = 10'000;                 // for a connect, and for anything to happen
constexpr std::chrono::microseconds kSpin(50);  // how long an end polls without result before it sleeps
constexpr size_t kTextBytes = 128;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "backend_bandwidth: %s\n", what.c_str());
  std::exit(1);
}

// The identity under which each process admits the other one, and grants memory to it.
constexpr PeerName kOther{{std::byte{1}}};

// The message that the receiver sends through the pipe before there is a connection.
struct Meeting {
  char address[kTextBytes];
  RegionKey key;
};

// One process's end: its device, its buffers, and counts of what poll() has reported.
struct End {
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Device> device;
  std::vector<std::byte> memory;
  RegionKey key;
  size_t ready = 0;    // connections that carry writes
  size_t sent = 0;     // own writes that are finished
  size_t written = 0;  // writes of the other process that were placed
  size_t closed = 0;   // connections that are finished
  std::vector<Completion> completions;
  std::chrono::steady_clock::time_point busy;  // when poll() had something to do last

  // There is one buffer of `bytes` for each connection, as in the programs that this one is compared with.
  // More buffers would take a larger part of the caches.
  End(const std::string& name, const BackendOptions& options, const char* address, size_t bytes,
      size_t connections)
      : memory(connections * bytes) {
    auto made = make_backend(name, options, module_folders());
    if (!made.is_ok()) die(made.status().to_string());
    backend = made.take();
    DeviceInfo info;
    info.name = "lo";
    info.address = address;
    auto opened = backend->open(info);
    if (!opened.is_ok()) die(opened.status().to_string());
    device = opened.take();
    auto registered = device->register_memory(memory.data(), memory.size(), -1);
    if (!registered.is_ok()) die(registered.status().to_string());
    key = registered.value();
    if (!device->grant(key, kOther).is_ok()) die("memory is not granted");
  }

  // One round, as the daemon's engines make it: polls, and sleeps on event_fd() if there was nothing to do
  // for kSpin. Dies when a connection fails.
  void step() {
    completions.clear();
    const auto now = std::chrono::steady_clock::now();
    if (device->poll(completions)) {
      busy = now;
    } else if (now - busy > kSpin) {
      pollfd wait{device->event_fd(), POLLIN, 0};
      if (::poll(&wait, 1, kWaitMs) == 0) die("nothing happens for 10 s");
    }
    for (const Completion& completion : completions) {
      if (completion.kind == Completion::Kind::kClosed && !completion.error.is_ok()) {
        die(completion.error.to_string());
      }
      closed += completion.kind == Completion::Kind::kClosed;
      const bool met =
          completion.kind == Completion::Kind::kConnected || completion.kind == Completion::Kind::kAccepted;
      if (met && !completion.connection->admit(kOther).is_ok()) die("the other process is not admitted");
      ready += completion.kind == Completion::Kind::kReady;
      sent += completion.kind == Completion::Kind::kSent && completion.error.is_ok();
      written += completion.kind == Completion::Kind::kWritten;
    }
  }
};

// The byte at `index` of the sender's buffers. The second term makes equal offsets in different pages differ.
std::byte pattern(size_t index) { return static_cast<std::byte>(index * 7 + index / 251); }

// The child: takes writes until the sender has closed every connection, and then checks them.
int receive(End& end, int out, size_t writes, size_t connections) {
  auto address = end.device->listen(0);
  if (!address.is_ok()) die(address.status().to_string());
  Meeting meeting{};
  std::snprintf(meeting.address, sizeof meeting.address, "%s", address.value().c_str());
  meeting.key = end.key;
  if (::write(out, &meeting, sizeof meeting) != sizeof meeting) die("cannot send the address");
  while (end.closed < connections) end.step();
  if (end.written != writes) die("writes are missing");
  for (size_t i = 0; i < end.memory.size(); ++i) {
    if (end.memory[i] != pattern(i)) die("the bytes that arrived are not those that were sent");
  }
  return 0;
}

// The parent: keeps every connection's window full until all writes are reported sent, and prints the speed.
void send(End& end, int in, size_t bytes, size_t writes, size_t count) {
  for (size_t i = 0; i < end.memory.size(); ++i) end.memory[i] = pattern(i);
  Meeting meeting{};
  if (::read(in, &meeting, sizeof meeting) != sizeof meeting) die("the other process gives no address");
  std::vector<Connection*> connections;
  for (size_t i = 0; i < count; ++i) {
    const auto connection = end.device->connect(meeting.address, kWaitMs);
    if (!connection.is_ok()) die(connection.status().to_string());
    connections.push_back(connection.value());
  }
  while (end.ready < count) end.step();

  const auto started = std::chrono::steady_clock::now();
  for (size_t posted = 0; end.sent < writes; end.step()) {
    for (size_t i = 0; i < count; ++i) {
      const size_t offset = i * bytes;
      while (posted < writes && connections[i]->write_window() > 0) {
        if (!connections[i]
                 ->write(end.memory.data() + offset, bytes, meeting.key, offset, {}, ++posted)
                 .is_ok())
          die("a write is refused");
      }
    }
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  std::printf("%zu writes of %zu bytes over %zu connections: %.2f MB/s\n", writes, bytes, count,
              static_cast<double>(writes) * static_cast<double>(bytes) / seconds / 1e6);
  for (Connection* connection : connections) connection->close();
  while (end.closed < count) end.step();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) {
    std::fprintf(stderr,
                 "usage: backend_bandwidth LOCAL REMOTE BYTES WRITES CONNECTIONS BACKEND [KEY=VALUE...]\n");
    return 2;
  }
  const size_t bytes = std::strtoull(argv[3], nullptr, 10);
  const size_t writes = std::max<size_t>(1, std::strtoull(argv[4], nullptr, 10));
  const size_t connections = std::max<size_t>(1, std::strtoull(argv[5], nullptr, 10));
  const std::string backend = argv[6];
  BackendOptions options;
  for (int i = 7; i < argc; ++i) {
    const std::string option = argv[i];
    const size_t equals = option.find('=');
    if (equals == std::string::npos) die("'" + option + "' given; expected KEY=VALUE");
    options[option.substr(0, equals)] = option.substr(equals + 1);
  }
  int ends[2];
  if (::pipe(ends) != 0) die("cannot make a pipe");
  // Both processes load the backend after the fork, because its libraries do not survive one.
  const pid_t child = ::fork();
  if (child < 0) die("cannot fork");
  if (child == 0) {
    End end(backend, options, argv[2], bytes, connections);
    std::_Exit(receive(end, ends[1], writes, connections));
  }
  ::close(ends[1]);
  End end(backend, options, argv[1], bytes, connections);
  send(end, ends[0], bytes, writes, connections);
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) die("the receiver failed");
  return 0;
}
