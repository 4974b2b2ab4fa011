// class_map.cc: see class_map.h.
#include "class_map.h"

#include <fnmatch.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "operation.h"

namespace hdt_torch {

std::string class_of(const std::string& description) {
  const char* const variable = std::getenv("HDT_CLASS_MAP");
  std::string_view rest = variable == nullptr ? "" : variable;
  std::string found;
  // All of it is looked at, also behind a match: every group reports what is wrong in it.
  while (!rest.empty()) {
    const std::string entry(rest.substr(0, rest.find(',')));
    rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
    const size_t sign = entry.find('=');
    if (sign == std::string::npos || sign == 0 || sign + 1 == entry.size()) {
      throw Failure("hdt: HDT_CLASS_MAP has the entry '" + entry +
                    "'; expected PATTERN=CLASS, separated by commas, e.g. *dp*=bulk,*tp*=latency");
    }
    const int matched = ::fnmatch(entry.substr(0, sign).c_str(), description.c_str(), 0);
    if (matched == 0 && found.empty()) found = entry.substr(sign + 1);
  }
  return found;
}

}  // namespace hdt_torch
