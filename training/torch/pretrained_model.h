// pretrained_model.h: a model in a folder as Hugging Face's library writes it: config.json and safetensors
// files. Free of torch.
#pragma once

#include <map>
#include <span>
#include <string>

#include "base/status.h"
#include "training/checkpoint/model_folder.h"
#include "training/engine/tensor_info.h"
#include "training/torch/model_shape.h"

namespace hdt::training {

// A folder that is open for reading. Used on one thread.
class PretrainedModel {
 public:
  // Reads config.json, and the headers of all safetensors files. kInvalidArgument names the file, and every
  // tensor (the first few) that is missing, is not one of this model, or is of another shape or type.
  static Result<PretrainedModel> open(const std::string& folder);

  const std::string& folder() const { return tensors_.folder(); }
  const ModelShape& shape() const { return shape_; }  // sequence_length is 0
  // Fills `out` with a tensor of this model (tensor_names.h). Only its bytes are read.
  Status read(const TensorInfo& tensor, TypedSpan out) const;

 private:
  PretrainedModel(ModelShape shape, ModelFolder tensors) : shape_(shape), tensors_(std::move(tensors)) {}
  Status match();

  ModelShape shape_;
  ModelFolder tensors_;
  std::map<std::string, std::string> stored_names_;  // the model's name -> the one in the files
};

}  // namespace hdt::training
