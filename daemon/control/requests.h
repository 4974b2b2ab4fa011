// requests.h: the requests of processes (SessionHandler), handed to the part or the engines that they are
// for.
//
// Owner: Control; the control thread.
#pragma once

#include <cstdint>
#include <string>

#include "daemon/control/control_parts.h"

namespace hdt::daemon {

class Requests : public SessionHandler {
 public:
  explicit Requests(ControlParts& daemon) : daemon_(daemon) {}

  void on_opened(uint64_t session) override;
  void on_rendezvous(uint64_t session) override;
  void on_join(uint64_t session, const ipc::JoinRequest& request) override;
  void on_notice(uint64_t session, ipc::Kind kind, const ipc::GroupNotice& notice) override;
  void on_status(uint64_t session) override;
  void on_explain(uint64_t session, const ipc::ExplainRequest& request) override;
  void on_ask(uint64_t session, const ipc::Question& question) override;
  void on_share(uint64_t session, const ipc::MemoryAnswer& answer, const SharedBlock& block) override;
  void on_shared_before(uint64_t session, uint64_t number, const SharedBlock& block) override;
  void on_unshared(uint64_t number) override;
  Status on_adopt(uint64_t session, const ipc::AdoptRequest& request, UniqueFd segment) override;
  void on_open(uint64_t session, const ipc::MemoryRequest& request) override;
  void on_session_ended(uint64_t session, const std::string& how) override;

 private:
  // on_share(), when the engine has done its part: it knows the memory, or has failed to note it.
  void answer_share(uint64_t session, const ipc::MemoryAnswer& answer, bool known);

  ControlParts& daemon_;
};

}  // namespace hdt::daemon
