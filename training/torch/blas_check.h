// blas_check.h: notices a reference BLAS, with which training is some 24 times slower. Free of torch
// headers. libtorch takes matrix products from whatever BLAS the system has installed, and does not
// report which one it is.
#pragma once

#include <string>

namespace hdt::training {

// The library file from which this process takes matrix products, with links resolved; "" if that cannot
// be found out.
std::string blas_library();

// Whether that path is the reference implementation (Debian: .../blas/libblas.so.3.*; OpenBLAS is in a
// folder of another name).
bool is_reference_blas(const std::string& library);

// The message to the user about `library`, with the remedy; "" if nothing is wrong with it.
std::string blas_warning(const std::string& library);

}  // namespace hdt::training
