// handle.h: what a rank sends the others about itself for torch's reconfigure(), as a text. Free of torch.
// Any thread.
#pragma once

#include <string>

#include "hdt/hdt.h"

namespace hdt_torch {

struct Handle {
  // A rank finds itself among the handles by this, also if it has given out several; made by new_token().
  std::string token;
  // Groups of which it is rank 0 meet by ids derived from this one; made by hdtGetUniqueId() on that rank.
  hdtUniqueId_t id{};
};

// A random name, different from all others. Throws std::exception if the system has no random numbers.
std::string new_token();
// "hdt:TOKEN:ID", in hexadecimal digits.
std::string text_of(const Handle& handle);
// Throws Failure, with the text, if text_of() did not make it.
Handle handle_of(const std::string& text);

}  // namespace hdt_torch
