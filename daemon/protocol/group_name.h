// group_name.h: the public name of a group in diagnosis and logs. A group's id is known to its members
// only. Its name is a hash of the id: the same on all nodes, but a reader of a log learns nothing from it
// that a daemon or a session would accept as the id.
#pragma once

#include <cstdint>
#include <string>

namespace hdt::daemon {

// The name: 16 hexadecimal digits (GroupFacts::id). "without a name" if OpenSSL refuses to hash.
std::string id_text(uint64_t group);
// The first eight digits of the name, for people.
std::string short_id(uint64_t group);

}  // namespace hdt::daemon
