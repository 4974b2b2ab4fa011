// blas_check.h: notices a reference BLAS, with which training is some 24 times slower. Free of torch headers.
#pragma once

#include <string>

namespace hdt::training {

// The library file that this process takes matrix products from, links resolved; "" if it cannot be told.
std::string blas_library();

// Whether that path is the reference implementation (Debian: .../blas/libblas.so.3.*).
bool is_reference_blas(const std::string& library);

// What to tell the user about `library`, and how to fix it; "" if there is nothing to say.
std::string blas_warning(const std::string& library);

}  // namespace hdt::training
