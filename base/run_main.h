// run_main.h: the frame of a program's main(): no exception leaves it. Main thread.
#pragma once

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>

namespace hdt {

// Returns what `run` returns. An exception that leaves it is one line on standard error, as ranks' lines mix
// there, and the exit code `failed`: a program that a user starts does not abort.
template <typename Run>
int run_main(const char* program, int failed, Run&& run) {
  try {
    return run();
  } catch (const std::exception& error) {
    std::string text = error.what();
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::fprintf(stderr, "%s: %s\n", program, text.c_str());
    return failed;
  }
}

}  // namespace hdt
