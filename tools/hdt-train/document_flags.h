// document_flags.h: the flags of samples that hold several documents, in Megatron's names. Part of flags.h.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "tools/hdt-train/flags.h"

namespace hdt::tools {

// Adds the flags. `flags` must outlive the parsing.
void add_document_flags(CLI::App& app, TrainFlags& flags);

// After parsing, with an open tokenizer: tells the model which token ends a document. Returns "" or what is
// wrong.
std::string take_document_flags(TrainFlags& flags);

// The flags that are given, each after ", ": the end of a text that names the data.
std::string document_flags(const TrainFlags& flags);

}  // namespace hdt::tools
