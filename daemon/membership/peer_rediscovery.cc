// peer_rediscovery.cc: see peer_rediscovery.h. The other side of the exchange is Restarts::on_successor()
// (control/restarts.cc).
#include "daemon/membership/peer_rediscovery.h"

#include "daemon/protocol/facts.h"

namespace hdt::daemon {

namespace {

// How often a Successor is sent. Ranks wait meanwhile, and an answer takes one round trip; so a lost one
// costs little.
constexpr int64_t kSeekAgainMs = 20;

}  // namespace

// The first message leaves at once; on_time() repeats it.
// A search for the same place of the same group replaces the one before.
void PeerRediscovery::begin(const Successor& word, const std::string& address, Deadline until) {
  Seeking& seeking =
      seekings_.insert_or_assign({word.group, word.to}, Seeking{word, address, until, Deadline::never()})
          .first->second;
  tell(seeking);
}

// A connection that has failed is dialled again by the next repetition, as on_closed() has dropped it.
void PeerRediscovery::tell(Seeking& seeking) {
  const auto [channel, is_new] = dialled_.try_emplace(seeking.address, 0);
  if (is_new) channel->second = channels_.dial(seeking.address);
  channels_.send(channel->second, seeking.word);
  seeking.again_at = Deadline::after_ms(kSeekAgainMs);
}

// By the public name, which is what diagnosis and the engines report.
void PeerRediscovery::end_group(const std::string& id) {
  std::erase_if(seekings_, [&](const auto& entry) { return id_text(entry.first.first) == id; });
}

// Any daemon that passed the handshake may send one, and an answer may come several times.
void PeerRediscovery::on_successor_reply(ChannelId channel, const SuccessorReply& answer) {
  const auto seeking = seekings_.find({answer.group, answer.to});
  if (seeking == seekings_.end()) return;
  // An answer is believed only on the connection to the address at which the group's node was looked for.
  // Control has checked that the sender is the node that it names.
  const auto asked = dialled_.find(seeking->second.address);
  if (asked == dialled_.end() || asked->second != channel || answer.from != seeking->second.word.from) return;
  // Sent again anyway. Only newer settings need something done here first; if this node knows the newer
  // ones, the other node takes them from the next Successor.
  if (answer.code == Code::kInProgress) {
    if (answer.live > seeking->second.word.live) user_.newer(seeking->second.word, answer);
    return;
  }
  // The search goes on: only the engine knows when the group works with that node (end()).
  if (answer.code == Code::kSuccess) return user_.met(seeking->second.word, answer);
  give_up(answer);
}

// The group cannot go on with one of its nodes, so none of its other nodes is searched any longer.
void PeerRediscovery::give_up(const SuccessorReply& answer) {
  end_group(id_text(answer.group));
  user_.failed(answer);
}

// The connection is shared by all searches at its address; they go on.
void PeerRediscovery::on_closed(ChannelId channel) {
  std::erase_if(dialled_, [channel](const auto& entry) { return entry.second == channel; });
}

// 1. Searches that are too late end silently: the engine fails the group. 2. Messages that are due are sent
//    again.
void PeerRediscovery::on_time() {
  std::erase_if(seekings_, [](const auto& entry) { return entry.second.until.expired(); });
  for (auto& [whom, seeking] : seekings_) {
    if (seeking.again_at.expired()) tell(seeking);
  }
}

// Nothing: no node is searched.
std::optional<Deadline> PeerRediscovery::next_time() const {
  std::optional<Deadline> next;
  for (const auto& [whom, seeking] : seekings_) {
    const Deadline time = Deadline::earlier(seeking.until, seeking.again_at);
    next = next ? Deadline::earlier(*next, time) : time;
  }
  return next;
}

}  // namespace hdt::daemon
