// users.h: whether a user's number means one user. In a user namespace all users that have no number
// there share one, the overflow uid (65534, "nobody"). That number does not identify the user, so
// nothing may be granted by it.
#pragma once

#include <sys/types.h>

namespace hdt {

// Whether a number that the kernel gave (of a file or of a socket's peer) is that of this process's own
// user and of nobody else.
bool is_this_user(uid_t uid);
// Whether the number stands for exactly one user.
bool has_a_number(uid_t uid);
// Whether this process's user can be distinguished from others by its number.
bool this_user_has_a_number();

}  // namespace hdt
