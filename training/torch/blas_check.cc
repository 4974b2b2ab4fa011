// blas_check.cc: asks the dynamic linker which file sgemm_ comes from. On Debian libblas.so.3 is a link
// that `update-alternatives` sets, so the link is resolved.
#include "training/torch/blas_check.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace hdt::training {

// RTLD_DEFAULT finds the symbol that libtorch's calls resolve to. It is not linked by name here.
std::string blas_library() {
  void* symbol = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info where{};
  if (symbol == nullptr || dladdr(symbol, &where) == 0 || where.dli_fname == nullptr) return "";
  std::error_code error;
  const std::filesystem::path resolved = std::filesystem::canonical(where.dli_fname, error);
  return error ? where.dli_fname : resolved.string();
}

bool is_reference_blas(const std::string& library) {
  const std::filesystem::path path(library);
  return path.parent_path().filename() == "blas" && path.filename().string().starts_with("libblas.so");
}

std::string blas_warning(const std::string& library) {
  if (!is_reference_blas(library)) return "";
  return fmt::format(
      "WARNING: matrix products come from the reference BLAS ({}): training will be some 24 times slower "
      "than it "
      "could be. Fix: apt install libopenblas0-openmp",
      library);
}

}  // namespace hdt::training
