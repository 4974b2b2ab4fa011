// peer_rediscovery.h: how a daemon that was started again finds the other nodes of the groups that it has
// adopted. For each group and node it sends a Successor to the address at which that node's daemon can be
// met, as the segment has it, and again every 20 ms until the group works with that node. So nothing depends
// on one message: the other node may not have noticed the loss yet, or its daemon may be starting again, too.
//
// A search (`Seeking`) ends when the engine reports the node as back (end()), when the group ends or
// fails, or at its deadline. After the deadline the engine fails the group itself.
//
// Owner and thread: Control; the control thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "daemon/membership/channels.h"
#include "daemon/protocol/control_messages.h"

namespace hdt::daemon {

// The reports of PeerRediscovery. The functions may call its refresh() and give_up().
class PeerRediscoveryUser {
 public:
  virtual ~PeerRediscoveryUser() = default;
  // The other node goes on with the group: the engines connect to it. Called for each such answer, so it may
  // come again.
  virtual void met(const Successor& sent, const SuccessorReply& answer) = 0;
  // The group does not go on, for the reason in the answer.
  virtual void failed(const SuccessorReply& answer) = 0;
  // The other node knows newer settings of the class than the Successor that was sent. They are to be taken
  // over, and refresh() to be called.
  virtual void newer(const Successor& sent, const SuccessorReply& answer) = 0;
};

class PeerRediscovery {
 public:
  // Both must live as long as this object.
  PeerRediscovery(Channels& channels, PeerRediscoveryUser& user) : channels_(channels), user_(user) {}

  // Begins to search the node `word.to` of the group at `address`, until the deadline. An earlier search
  // for the same node is replaced.
  void begin(const Successor& word, const std::string& address, Deadline until);
  // The group works with that node again.
  void end(uint64_t group, uint32_t node) { seekings_.erase({group, node}); }
  // The group has ended. `id` is its public name (GroupFacts::id).
  void end_group(const std::string& id);
  // An answer came on `channel`. It counts only if the group's node was asked on this connection and the
  // answer names the right nodes.
  void on_successor_reply(ChannelId channel, const SuccessorReply& answer);
  // Ends all searches of the group and reports `answer` as the failure: the other node refuses, or this
  // node cannot go on as the other one answered.
  void give_up(const SuccessorReply& answer);
  // Lets `renew` change the Successor of every search, as this node's ends or its settings of a class
  // have changed.
  template <typename Renew>
  void refresh(Renew&& renew) {
    for (auto& [which, seeking] : seekings_) renew(seeking.word);
  }
  // The connection has ended; the next Successor dials anew.
  void on_closed(ChannelId channel);
  // Sends what is due again and drops searches whose deadline has passed.
  void on_time();
  // When on_time() has something to do next; nothing: there is no search.
  std::optional<Deadline> next_time() const;

 private:
  // A search for one node of one group.
  struct Seeking {
    Successor word;
    std::string address;
    Deadline until;
    // when the Successor is sent again
    Deadline again_at;
  };
  // Sends the Successor, and dials before if there is no connection to the address.
  void tell(Seeking& seeking);

  Channels& channels_;
  PeerRediscoveryUser& user_;
  // by the group's id and the node's number in it
  std::map<std::pair<uint64_t, uint32_t>, Seeking> seekings_;
  // by address; several groups share a connection
  std::map<std::string, ChannelId> dialled_;
};

}  // namespace hdt::daemon
