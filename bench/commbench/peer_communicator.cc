// peer_communicator.cc: memory and addresses for the peers.
#include "bench/commbench/peer_communicator.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

namespace hdt::bench {
namespace {

constexpr size_t kPage = 4096;

}  // namespace

Result<Memory> allocate_host_memory(size_t bytes) {
  // aligned_alloc() wants a size that is a multiple of the alignment.
  void* pointer = std::aligned_alloc(kPage, (bytes + kPage - 1) / kPage * kPage);
  if (pointer == nullptr) {
    return Status(Code::kSystem, "no memory for a buffer of " + std::to_string(bytes) + " bytes");
  }
  return Memory(static_cast<std::byte*>(pointer), [](std::byte* memory) { std::free(memory); });
}

Result<std::string> reachable_address(bool one_node) {
  if (const char* addresses = std::getenv("HDT_NICS_ADDRESSES"); addresses != nullptr && *addresses != 0) {
    const std::string list = addresses;
    return list.substr(0, list.find(','));
  }
  if (one_node) return std::string("127.0.0.1");
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) != 0) return Status::from_errno("gethostname", errno);
  addrinfo hints{};
  // Gloo and the raw sockets are given IPv4 addresses.
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host, nullptr, &hints, &found); error != 0) {
    return Status(Code::kSystem, std::string("the address of this host, '") + host +
                                     "': " + gai_strerror(error) + "; HDT_NICS_ADDRESSES can name it");
  }
  char text[INET_ADDRSTRLEN] = {};
  inet_ntop(AF_INET, &reinterpret_cast<sockaddr_in*>(found->ai_addr)->sin_addr, text, sizeof text);
  freeaddrinfo(found);
  return std::string(text);
}

bool on_one_node(const Communicator& group) {
  for (int rank = 1; rank < group.ranks(); ++rank) {
    if (group.node_of(rank) != group.node_of(0)) return false;
  }
  return true;
}

// Offsets of the own part, as Measurer::run() computes them.
bool PeerCommunicator::in_place(const Call& call) const {
  const auto* send = static_cast<const std::byte*>(call.send);
  const auto* recv = static_cast<const std::byte*>(call.recv);
  const size_t part = static_cast<size_t>(rank()) * call.count * element_bytes(call.type);
  if (call.what == Collective::kReduceScatter) return recv == send + part;
  if (call.what == Collective::kAllGather) return send == recv + part;
  return send == recv;
}

}  // namespace hdt::bench
