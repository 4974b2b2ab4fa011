// group_name.h: how diagnosis and logs name a group. Its id is known to its members only; its name, the same
// on all nodes, is made from the id one way, so who reads it learns nothing that daemons or sessions would
// take for the id.
#pragma once

#include <cstdint>
#include <string>

namespace hdt::daemon {

// GroupFacts::id: 16 hexadecimal digits.
std::string id_text(uint64_t group);
// Its first eight, for people.
std::string short_id(uint64_t group);

}  // namespace hdt::daemon
