// strangers.h: the accepted connections of a backend that have not been admitted: how many there are, of
// which address, and which one goes when there are too many.
//
// The oldest of the address that has the most goes, and not the newest: a peer needs a moment to show who it
// is, and whoever fills the places says nothing. So a peer finds a place while strangers hold all, at its own
// address, too.
#pragma once

#include <algorithm>
#include <iterator>
#include <list>
#include <map>
#include <string>
#include <utility>

#include "transports/transport.h"

namespace hdt::transport {

// A connection that was accepted, as long as it is a stranger. Leaves when it is destroyed.
class Stranger;

class Strangers {
 public:
  void set_limits(const StrangerLimits& limits) { limits_ = limits; }
  size_t count() const { return all_; }

 private:
  friend class Stranger;
  // Newest last.
  using Place = std::list<Stranger*>::iterator;
  Place enter(Stranger& stranger);
  void leave(const std::string& host, Place place);
  // Turns the oldest one out of those of `host`.
  void make_room(const std::string& host, const std::string& why);

  StrangerLimits limits_;
  std::map<std::string, std::list<Stranger*>> by_host_;
  size_t all_ = 0;
};

class Stranger {
 public:
  virtual ~Stranger() { leave(); }

 protected:
  // `host`: the address it comes from, without a port. May turn out another one, never this one.
  void enter(Strangers& among, const std::string& host) {
    host_ = host;
    place_ = among.enter(*this);
    among_ = &among;
  }
  void leave() {
    if (among_ != nullptr) std::exchange(among_, nullptr)->leave(host_, place_);
  }
  // There are too many: it is to end itself with that reason. It has left.
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
  std::list<Stranger*> one{&stranger};  // from here on either both books have it or none
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
  oldest->leave();
  oldest->on_turned_out(reason);
}

}  // namespace hdt::transport
