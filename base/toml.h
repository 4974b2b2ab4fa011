// toml.h: toml++ without exceptions, and without its assumptions. Where NDEBUG is set the library (3.3) tells the
// compiler that a key begins as keys do, which a file does not have to keep to ("[[= 1"): the compiler may then leave
// out the code that refuses it. Elsewhere the same ends the process. Both are taken back: the code behind refuses.
#pragma once

#define TOML_EXCEPTIONS 0
#include <toml++/impl/preprocessor.h>
#undef TOML_ASSERT
#undef TOML_ASSERT_ASSUME
#define TOML_ASSERT(condition) static_assert(true)
#define TOML_ASSERT_ASSUME(condition) static_assert(true)
#include <toml++/toml.h>
