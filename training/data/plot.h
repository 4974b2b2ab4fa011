// plot.h: pictures that gnuplot draws. A program writes a script that holds its data, and has it drawn once.
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"

namespace hdt::training {

// The beginning of a script: an SVG of so many pixels with this title, written to stdout.
std::string plot_head(int width, int height, std::string_view title);
// `text` as a string of a script. Control characters become blanks; nothing in it is interpreted.
std::string plot_string(std::string_view text);

// Replaces PATH.gnuplot by `script`, and `path` by what gnuplot draws from it. The script stays, so that a
// user can read its data or change the picture.
// Returns an empty string. Where gnuplot is not installed only the script is written, and the string tells
// the user what to do. kSystem: a file cannot be written, or gnuplot failed. kTimeout: it took too long.
Result<std::string> write_plot(const std::string& path, const std::string& script);

}  // namespace hdt::training
