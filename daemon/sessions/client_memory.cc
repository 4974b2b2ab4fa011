// client_memory.cc: the part of ClientSessions that concerns memory of hdtMemAlloc. A process shares a
// memfd in one of its groups (kShare); the daemon maps it, so that engines can send from it and receive
// into it, and gives it a random number, by which other ranks of the group ask for it (kOpen).
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/hmac.h"
#include "daemon/sessions/client_sessions.h"

namespace hdt::daemon {

namespace {

// A claim for memory is rounded up to whole MiB.
constexpr uint64_t kMib = uint64_t{1} << 20;

}  // namespace

// A random number that is not in use. Knowing it is part of the right to open the memory, so it must not
// be guessed.
Result<uint64_t> ClientSessions::free_memory_number() const {
  uint64_t number = 0;
  while (number == 0 || memory_owners_.contains(number)) {
    // 0 is never a number: in a request it means that there is none.
    HDT_RETURN_IF_ERROR(random_bytes({reinterpret_cast<uint8_t*>(&number), sizeof number}));
  }
  return number;
}

// The number is a request's, and may be any. Null: nobody shares such memory now.
const ClientSession* ClientSessions::owner_of(uint64_t memory) const {
  const auto owner = memory_owners_.find(memory);
  return owner == memory_owners_.end() ? nullptr : &sessions_.at(owner->second);
}

// Engines are informed last: they stop using the mapping, which they hold by shared_ptr, when they get there.
void ClientSessions::forget_memory(ClientSession& client, uint64_t memory) {
  if (client.memories.erase(memory) == 0) return;
  memory_owners_.erase(memory);
  handler_.on_unshared(memory);
}

// With the seat goes the memory that was shared in it: the process may have other groups, which have no
// right to it.
void ClientSessions::end_seat(ClientSession& client, uint32_t handle) {
  client.seats.erase(handle);
  std::vector<uint64_t> shared;
  for (const auto& [memory, block] : client.memories) {
    if (block.handle == handle) shared.push_back(memory);
  }
  // Collected first, as forget_memory() erases from the map.
  for (const uint64_t memory : shared) forget_memory(client, memory);
}

// The file comes from the process. It is mapped only if it cannot shrink (SharedMemory::map()), so an
// engine never touches pages that are gone.
Status ClientSessions::share(uint64_t number, Packet& packet) {
  // 1. The request must be one that a correct library makes; otherwise the session ends (an error that is
  //    returned).
  const auto request = ipc::decode_memory_request(packet.bytes);
  if (!request.is_ok()) return request.status();
  if (packet.descriptors.is_ok() && packet.fds.size() != 1)
    return {Code::kInvalidArgument, "memory to share needs one descriptor"};
  const uint64_t wanted = request.value().memory;
  ClientSession& client = sessions_.at(number);
  ipc::MemoryAnswer answer;
  answer.request = request.value().request;
  // 2. From here on an error of kSystem is a limit: it concerns this memory alone, and the process gets
  //    it as an answer. But memory that a predecessor had accepted has no request that waits for an
  //    answer, so the session ends.
  const auto refused = [&](const Status& why) {
    if (why.code() != Code::kSystem || wanted != 0) return why;
    answer.code = why.code();
    answer.text = why.message();
    send(number, ipc::encode(answer));
    return Status::ok();
  };
  if (wanted != 0 && memory_owners_.contains(wanted)) {
    return {Code::kInvalidUsage,
            "shared memory " + std::to_string(wanted) + " of this daemon's predecessor has been taken"};
  }
  // A process that has just come from a predecessor shares its memory before it hands its groups over, so
  // it has no seats yet.
  if (wanted == 0 && !client.seats.contains(request.value().handle))
    return {Code::kInvalidUsage, "memory to share in a group that the process is not in"};
  if (!packet.descriptors.is_ok()) return refused(packet.descriptors);
  struct stat file {};
  if (::fstat(packet.fds[0].get(), &file) != 0)
    return refused(Status::from_errno("fstat of memory to share", errno));
  // 3. Claims and mapping. A file that the process shares already, in another group, is mapped and
  //    counted once.
  SharedBlock block;
  block.handle = request.value().handle;
  block.device = file.st_dev;
  block.inode = file.st_ino;
  if (client.memories.size() >= ipc::kMaxMemories)
    return refused(
        {Code::kSystem, "a process may share " + std::to_string(ipc::kMaxMemories) + " allocations"});
  auto claim = limits_.claim(client.credentials.uid, UserLimits::What::kMemories);
  if (!claim.is_ok()) return refused(claim.status());
  block.claim = claim.take();
  const auto same = std::find_if(client.memories.begin(), client.memories.end(), [&](const auto& entry) {
    return entry.second.device == file.st_dev && entry.second.inode == file.st_ino;
  });
  if (same != client.memories.end()) {
    block.memory = same->second.memory;
    block.size_claim = same->second.size_claim;
  } else {
    auto size = limits_.claim(client.credentials.uid, UserLimits::What::kMemoryMib,
                              static_cast<int64_t>((static_cast<uint64_t>(file.st_size) + kMib - 1) / kMib));
    if (!size.is_ok()) return refused(size.status());
    auto memory = SharedMemory::map(std::move(packet.fds[0]));
    if (!memory.is_ok()) return refused(memory.status());
    block.memory = std::make_shared<SharedMemory>(memory.take());
    block.size_claim = std::make_shared<UserLimits::Claim>(size.take());
  }
  // 4. Its number: the one that a predecessor gave it, or a new one. The group's engine learns of it before
  //    the process does, so that a call never names memory that its engine does not know.
  answer.memory = wanted;
  if (wanted == 0) {
    const auto drawn = free_memory_number();
    if (!drawn.is_ok()) return refused(drawn.status());
    answer.memory = drawn.value();
  }
  // The session's own entry first: end() finds by it what else is known of the memory.
  const SharedBlock& kept = client.memories.emplace(answer.memory, std::move(block)).first->second;
  memory_owners_[answer.memory] = number;
  if (wanted == 0) {
    handler_.on_share(number, answer, kept);
  } else {
    handler_.on_shared_before(number, answer.memory, kept);
  }
  return Status::ok();
}

}  // namespace hdt::daemon
