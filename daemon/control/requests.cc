// requests.cc: see requests.h.
#include "daemon/control/requests.h"

#include <array>
#include <utility>

#include "daemon/control/answers.h"
#include "daemon/control/diagnosis.h"
#include "daemon/control/joins.h"
#include "daemon/control/restarts.h"

namespace hdt::daemon {

void Requests::on_opened(uint64_t session) {
  const ClientSession* client = daemon_.sessions->find(session);
  daemon_.engines.post_all([link = client->link](Engine& engine) { engine.sessions().add(link); });
}

void Requests::on_rendezvous(uint64_t session) {
  // The successor of an embedded daemon listens at the same addresses with another node id, so its id is
  // left out.
  const std::string at =
      daemon_.host_pid != 0 ? daemon_.network->address() : daemon_.network->address_with_id();
  daemon_.sessions->send(session, ipc::encode_text(ipc::Kind::kRendezvousAt, Code::kSuccess, at));
}

void Requests::on_join(uint64_t session, const ipc::JoinRequest& request) {
  daemon_.joins->on_join(session, request);
}

void Requests::on_status(uint64_t session) { daemon_.answers->status(session); }

void Requests::on_explain(uint64_t session, const ipc::ExplainRequest& request) {
  daemon_.answers->explain(session, request);
}

void Requests::on_ask(uint64_t session, const ipc::Question& question) {
  daemon_.answers->ask(session, question);
}

Status Requests::on_adopt(uint64_t session, const ipc::AdoptRequest& request, UniqueFd segment) {
  return daemon_.restarts->adopt(session, request, std::move(segment));
}

void Requests::on_notice(uint64_t session, ipc::Kind kind, const ipc::GroupNotice& notice) {
  ClientSession* client = daemon_.sessions->find(session);
  const auto seat = client->seats.find(notice.handle);
  if (seat == client->seats.end()) return;
  // A group fails once. A process that reports it again and again keeps nobody busy.
  if (kind == ipc::Kind::kDeadline && std::exchange(seat->second.told_deadline, true)) return;
  if (kind == ipc::Kind::kFail && std::exchange(seat->second.told_failure, true)) return;
  if (kind == ipc::Kind::kDeadline) return daemon_.diagnosis->on_deadline(session, seat->second, notice);
  daemon_.engines.post(seat->second.engine, [session, kind, notice](Engine& engine) {
    switch (kind) {
      case ipc::Kind::kLeave:
        return engine.sessions().leave(session, notice.handle);
      default:
        return engine.sessions().fail(session, notice.handle, notice.code, notice.rank, notice.text);
    }
  });
  if (kind == ipc::Kind::kLeave) daemon_.sessions->end_seat(*client, notice.handle);
}

void Requests::on_shared(uint64_t session, uint64_t number, const SharedBlock& block) {
  daemon_.engines.post_all([session, number, handle = block.handle, memory = block.memory](Engine& engine) {
    engine.sessions().add_memory(session, number, handle, memory);
  });
}

void Requests::on_unshared(uint64_t number) {
  daemon_.engines.post_all([number](Engine& engine) { engine.sessions().remove_memory(number); });
}

// Memory is given only to processes of the same user that are in the group in which its owner uses it.
// The answer does not reveal whether the memory exists.
void Requests::on_open(uint64_t session, const ipc::MemoryRequest& request) {
  const ClientSession* asker = daemon_.sessions->find(session);
  const auto seat = asker->seats.find(request.handle);
  std::shared_ptr<SharedMemory> memory;
  const ClientSession* owner = daemon_.sessions->owner_of(request.memory);
  if (owner != nullptr && seat != asker->seats.end() && owner->credentials.uid == asker->credentials.uid) {
    const SharedBlock& block = owner->memories.at(request.memory);
    const auto of_owner = owner->seats.find(block.handle);
    if (of_owner != owner->seats.end() && of_owner->second.same_group(seat->second)) memory = block.memory;
  }
  ipc::MemoryAnswer answer{request.request, Code::kSuccess, "", request.memory};
  if (memory == nullptr) {
    answer.code = Code::kInvalidUsage;
    answer.text = "no rank of the group shares memory " + std::to_string(request.memory);
    daemon_.sessions->send(session, ipc::encode(answer));
    return;
  }
  const std::array<int, 1> fds = {memory->fd()};
  daemon_.sessions->send(session, ipc::encode(answer), fds);
}

void Requests::on_gone(uint64_t session, const std::string& how) {
  daemon_.joins->on_gone(session);
  daemon_.maker->on_session_gone(session, how);
  daemon_.engines.post_all([session, how](Engine& engine) { engine.sessions().lost(session, how); });
}

}  // namespace hdt::daemon
