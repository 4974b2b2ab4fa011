// requests.cc: see requests.h.
#include "daemon/control/requests.h"

#include <array>
#include <utility>

#include "base/contained.h"
#include "daemon/control/answers.h"
#include "daemon/control/diagnosis.h"
#include "daemon/control/joins.h"
#include "daemon/control/restarts.h"

namespace hdt::daemon {

// Posted to all engines, since the process may join groups of any of them. The work is in each mailbox
// before any seat of the session can be.
void Requests::on_opened(uint64_t session) {
  const ClientSession* client = daemon_.sessions->find(session);
  daemon_.engines.post_all([link = client->link](Engine& engine) { engine.sessions().add(link); });
}

// For a process that needs the address at which ranks can reach this daemon, such as one that makes an id
// for a group (hdtGetUniqueId()).
void Requests::on_rendezvous(uint64_t session) {
  // The successor of an embedded daemon listens at the same addresses with another node id, so its id is
  // left out.
  const std::string at =
      daemon_.host_pid != 0 ? daemon_.network->address() : daemon_.network->address_with_id();
  daemon_.sessions->send(session, ipc::encode_text(ipc::Kind::kRendezvousAt, Code::kSuccess, at));
}

// Joins keeps the request until GroupMaker has answered it.
void Requests::on_join(uint64_t session, const ipc::JoinRequest& request) {
  daemon_.joins->on_join(session, request);
}

// Answers come later, when all engines have reported; the session is not read until then.
void Requests::on_status(uint64_t session) { daemon_.answers->status(session); }

// Checked by Answers: the names in it come from a user.
void Requests::on_explain(uint64_t session, const ipc::ExplainRequest& request) {
  daemon_.answers->explain(session, request);
}

// The subject of the question is a text, which Answers looks at.
void Requests::on_ask(uint64_t session, const ipc::Question& question) {
  daemon_.answers->ask(session, question);
}

// An error ends the group for this process, not its session (ClientSessions::adopt()).
Status Requests::on_adopt(uint64_t session, const ipc::AdoptRequest& request, UniqueFd segment) {
  return daemon_.restarts->adopt(session, request, std::move(segment));
}

// The handle names a seat of this session, so a process can leave or fail groups that it is in and no
// others. A notice about a seat that has ended is no error: the group may have ended while the message was on
// its way.
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

// Memory is shared in one group, and a group stays with its engine: no other engine can see a call that uses
// it. The answer waits for that engine, whose mailbox has the seat of the rank already. So an engine knows
// whatever memory a call may name, and one that does not know it need not wait. A session that ends meanwhile
// gets no answer, and an engine that hangs gives none: the process asks with a deadline (Session::ask()).
void Requests::on_share(uint64_t session, const ipc::MemoryAnswer& answer, const SharedBlock& block) {
  const auto known = std::make_shared<bool>(false);
  daemon_.engines.on_one(
      daemon_.sessions->find(session)->seats.at(block.handle).engine,
      [session, number = answer.memory, handle = block.handle, memory = block.memory, known](Engine& engine) {
        engine.sessions().add_memory(session, number, handle, memory);
        *known = true;
      },
      [this, session, answer, known] {
        // The session ends if its answer cannot be sent, as with every other work for it.
        (void)contained(
            "an answer about shared memory", [&] { answer_share(session, answer, *known); },
            [&](const std::string&) { daemon_.sessions->hang_up(session); });
      });
}

// The engine had no memory to note what the process shares: the process must not use it.
void Requests::answer_share(uint64_t session, const ipc::MemoryAnswer& answer, bool known) {
  ClientSession* const client = daemon_.sessions->find(session);
  if (client == nullptr) return;
  if (known) {
    (void)daemon_.sessions->send(session, ipc::encode(answer));
    return;
  }
  daemon_.sessions->forget_memory(*client, answer.memory);
  const char* const why =
      "an engine of the daemon has no memory to note what is shared: free some on this node";
  (void)daemon_.sessions->send(session,
                               ipc::encode(ipc::MemoryAnswer{answer.request, Code::kSystem, why, 0}));
}

// Only the next messages of the process name the engine of its group, so all of them learn of it. They
// do so before they get the group.
void Requests::on_shared_before(uint64_t session, uint64_t number, const SharedBlock& block) {
  daemon_.engines.post_all([session, number, handle = block.handle, memory = block.memory](Engine& engine) {
    engine.sessions().add_memory(session, number, handle, memory);
  });
}

// Posted in the order of the process's messages, so no engine sees the end before the beginning.
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

// First the requests that wait, with their claims, then the groups that are being made. Engines come last:
// they find the seats of the session and mark its ranks as failed.
void Requests::on_session_ended(uint64_t session, const std::string& how) {
  daemon_.joins->on_session_ended(session);
  daemon_.maker->on_session_ended(session, how);
  daemon_.engines.post_all([session, how](Engine& engine) { engine.sessions().process_ended(session, how); });
}

}  // namespace hdt::daemon
