// class_map.h: the class of HDT for a group, by what torch calls the group. Free of torch.
#pragma once

#include <string>

namespace hdt_torch {

// The class that $HDT_CLASS_MAP has for the description, "" if it has none. The variable is a list of
// PATTERN=CLASS, separated by commas, e.g. "*dp*=bulk,*tp*=latency"; the first pattern that matches counts.
// Patterns are those of file names: * ? [...]. Throws Failure if the variable is none.
std::string class_of(const std::string& description);

}  // namespace hdt_torch
