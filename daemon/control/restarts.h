// restarts.h: groups over restarts of daemons (docs/design/restart.md), as the control thread sees them:
// when this daemon is the successor and processes bring their groups (adopt(), PeerRediscovery), and when
// another node's daemon was started again (on_successor()).
//
// Owner: ControlParts; the control thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/shared_memory.h"
#include "daemon/control/control_parts.h"
#include "daemon/membership/adoption.h"

namespace hdt::daemon {

class Restarts : public PeerRediscoveryUser {
 public:
  explicit Restarts(ControlParts& daemon) : daemon_(daemon) {}

  // A process brings a group of a predecessor, in which it is a rank. Errors: the group is not adopted.
  Status adopt(uint64_t session, const ipc::AdoptRequest& request, UniqueFd segment);
  // Another node's daemon was started again and wants to go on with a group.
  void on_successor(ChannelId channel, const Successor& word);

  // PeerRediscoveryUser
  void met(const Successor& sent, const SuccessorReply& answer) override;
  void failed(const SuccessorReply& answer) override;
  void newer(const Successor& sent, const SuccessorReply& answer) override;

 private:
  // The error when this node cannot have the class as another node has it.
  std::string cannot_be(const std::string& group_class, const NodeInfo& as_on, const Status& why) const;

  ControlParts& daemon_;
  Adoption adoption_;
  // memory of groups that were taken over, by group id
  std::map<uint64_t, std::weak_ptr<const SharedMemory>> adopted_;
};

}  // namespace hdt::daemon
