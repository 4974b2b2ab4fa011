// strangers.h: counts the strangers of a backend, that is, the accepted connections that are not admitted
// yet. It knows their addresses, and decides which one is closed when there are too many.
//
// At the limit of one address its oldest stranger is closed; at the limit of all, the oldest of the address
// with the maximum number. The oldest goes and not the newest, because an honest peer needs only a moment to
// authenticate itself, while an attacker's connections stay. So a peer finds a place while strangers hold all
// places, even if they come from its own address.
#pragma once

#include <algorithm>
#include <iterator>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "transports/transport.h"

namespace hdt::transport {

class Stranger;

// The book of one Backend, over all its devices; used on its thread. It must outlive the strangers in it.
class Strangers {
 public:
  void set_limits(const StrangerLimits& limits) { limits_ = limits; }
  size_t count() const { return all_; }

 private:
  friend class Stranger;
  // A stranger's place in the list of its address. The newest is at the end.
  using Place = std::list<Stranger*>::iterator;
  Place enter(Stranger& stranger);
  void leave(const std::string& host, Place place);
  // Closes the oldest stranger of `host`. `why` names the limit in the reason.
  void make_room(const std::string& host, const std::string& why);

  StrangerLimits limits_;
  std::map<std::string, std::list<Stranger*>> by_host_;  // no list is empty
  size_t all_ = 0;                                       // the sum of their lengths
};

// The base of an accepted connection. The connection enters when it is accepted, and leaves when it is
// admitted or has ended; the destructor leaves, too.
class Stranger {
 public:
  virtual ~Stranger() { leave(); }

 protected:
  // `host`: the address that it comes from, without a port. May close another stranger, but never this one.
  void enter(Strangers& among, const std::string& host) {
    host_ = host;
    place_ = among.enter(*this);
    among_ = &among;
  }
  void leave() {
    if (among_ != nullptr) std::exchange(among_, nullptr)->leave(host_, place_);
  }
  // There are too many strangers: the connection must end itself with that reason. It has left already.
  virtual void on_turned_out(const Status& why) = 0;

 private:
  friend class Strangers;
  Strangers* among_ = nullptr;
  std::string host_;
  Strangers::Place place_;
};

inline Strangers::Place Strangers::enter(Stranger& stranger) {
  const auto own = by_host_.find(stranger.host_);
  if (own != by_host_.end() && own->second.size() >= limits_.per_address) {
    make_room(stranger.host_, "limits.strangers_per_address = " + std::to_string(limits_.per_address));
  } else if (all_ >= limits_.all) {
    const auto most = std::max_element(by_host_.begin(), by_host_.end(), [](const auto& a, const auto& b) {
      return a.second.size() < b.second.size();
    });
    make_room(most->first, "limits.strangers = " + std::to_string(limits_.all));
  }
  // The node is allocated before the map's entry, and splicing allocates nothing: if either allocation
  // throws, the list and the count agree.
  std::list<Stranger*> one{&stranger};
  std::list<Stranger*>& those = by_host_[stranger.host_];
  those.splice(those.end(), one);
  ++all_;
  return std::prev(those.end());
}

inline void Strangers::leave(const std::string& host, Place place) {
  const auto found = by_host_.find(host);
  found->second.erase(place);
  if (found->second.empty()) by_host_.erase(found);
  --all_;
}

inline void Strangers::make_room(const std::string& host, const std::string& why) {
  const Status reason(Code::kSystem, "too many connections that have not shown who they are (" + why + ")");
  Stranger* oldest = by_host_.at(host).front();
  oldest->leave();  // first, as ending itself may destroy it
  oldest->on_turned_out(reason);
}

}  // namespace hdt::transport
