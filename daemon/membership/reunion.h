// reunion.h: how a daemon that was started again finds the other nodes of the groups that it has adopted: it
// tells each, where the segment says that its daemon can be met, who it is, and again until the group works
// with that node. Runs on the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/clock.h"
#include "daemon/membership/rendezvous.h"
#include "daemon/protocol/control_messages.h"

namespace hdt::daemon {

class Reunion {
 public:
  struct Services {
    std::function<ChannelId(const std::string& address)> dial;
    std::function<void(ChannelId, const ControlMessage&)> send;
    // The other node goes on; the group does not. With the word that was answered.
    std::function<void(const Successor&, const Known&)> met;
    std::function<void(const Known&)> failed;
    // The other node knows newer settings of the class than the word has; refresh() when they are this
    // node's, too.
    std::function<void(const Successor&, const Known&)> newer;
  };
  explicit Reunion(Services services) : services_(std::move(services)) {}

  // Until the deadline; what comes after it is the engine's to say.
  void begin(const Successor& word, const std::string& address, Deadline until);
  void end(uint64_t group, uint32_t node) { seekings_.erase({group, node}); }
  void end_group(const std::string& id);  // as GroupFacts has it
  // Heard only from where the group's node was asked.
  void on_known(ChannelId channel, const Known& answer);
  // This node itself cannot go on as the other one answered.
  void give_up(const Known& answer);
  // Renews what is said of this node.
  void refresh(const std::function<void(Successor&)>& renew);
  void on_closed(ChannelId channel);
  void on_time();
  std::optional<Deadline> next_time() const;

 private:
  struct Seeking {
    Successor word;
    std::string address;
    Deadline until;
    Deadline again_at;
  };
  void tell(Seeking& seeking);

  Services services_;
  std::map<std::pair<uint64_t, uint32_t>, Seeking> seekings_;  // by group and node
  std::map<std::string, ChannelId> channels_;                  // by address
};

}  // namespace hdt::daemon
