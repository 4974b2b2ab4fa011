// channels.h: control connections to other daemons, as the parts of the control thread use them.
// ControlNetwork is the implementation; tests have their own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "daemon/protocol/control_messages.h"

namespace hdt::daemon {

// Names a control connection. 0: none.
using ChannelId = uint64_t;

class Channels {
 public:
  virtual ~Channels() = default;
  // Connects to a daemon at one of these addresses. Never 0, never blocks; messages may be sent at once.
  // `self`: whether this node itself may be meant; nothing: that depends on the addresses.
  virtual ChannelId dial(const std::string& addresses, std::optional<bool> self) = 0;
  ChannelId dial(const std::string& addresses) { return dial(addresses, std::nullopt); }
  // Sends a message; dropped if the channel has ended. If there is no memory for it, the channel ends, so
  // that nobody waits for the message at the other end.
  virtual void send(ChannelId channel, const ControlMessage& message) = 0;
  // Nothing more will be sent: the channel closes when everything that was sent has left.
  virtual void finish(ChannelId channel) = 0;
  // Ends the channel at once, because a message that belongs on it is lost. Takes no memory.
  virtual void give_up(ChannelId channel) = 0;
};

}  // namespace hdt::daemon
