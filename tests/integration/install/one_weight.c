/* one_weight.c: a model of one weight, trained in fp64 by one rank through hdt/train.h: y = 2 x.
 * install_test.py builds it as C against an installed tree. Prints the weight. */
#include <hdt/train.h>
#include <stdio.h>

enum { kMaxBatch = 8 };

typedef struct {
  double* weight;
  double* gradient;
  double inputs[kMaxBatch];
  size_t count;
} Model;

static double input_of(int64_t sample) { return (double)(sample % 3 + 1); }

static int forward(void* context, int slot, const int64_t* samples, size_t count, const void* input,
                   void* output, double* loss, int64_t* tokens) {
  Model* model = context;
  (void)slot; /* a single stage has one micro-batch in flight */
  if (count > kMaxBatch || input != NULL || output != NULL) return 1;
  *loss = 0;
  for (size_t i = 0; i < count; ++i) {
    model->inputs[i] = input_of(samples[i]);
    const double error = (*model->weight - 2) * model->inputs[i];
    *loss += error * error;
  }
  *tokens = (int64_t)count;
  model->count = count;
  return 0;
}

static int backward(void* context, int slot, const void* output_gradient, void* input_gradient,
                    double loss_factor, hdtTrainUnitDone_t unit_done, void* engine) {
  Model* model = context;
  (void)slot;
  if (loss_factor != 1 || output_gradient != NULL || input_gradient != NULL) return 1;
  for (int unit = 2; unit >= 0; --unit) {
    if (unit == 0) {
      for (size_t i = 0; i < model->count; ++i) {
        *model->gradient += 2 * (*model->weight - 2) * model->inputs[i] * model->inputs[i];
      }
    }
    unit_done(engine, unit);
  }
  return 0;
}

static int update(void* context, double gradient_scale) {
  Model* model = context;
  *model->weight -= 0.05 * gradient_scale * *model->gradient;
  return 0;
}

static int failed(const char* what) {
  printf("%s: %s / %s\n", what, hdtGetLastError(), hdtTrainGetLastError());
  return 1;
}

int main(void) {
  hdtUniqueId_t id;
  hdtComm_t comm = NULL;
  if (hdtGetUniqueId(&id) != HDT_SUCCESS || hdtCommInitRank(&comm, 1, id, 0, NULL) != HDT_SUCCESS)
    return failed("a group");
  hdtTrainLayout_t layout = {.num_layers = 1, .micro_batch_size = 4, .global_batch_size = 8};
  hdtTrainPlace_t place;
  if (hdtTrainPlaceOf(&layout, 1, 0, &place) != HDT_SUCCESS) return failed("a place");
  if (place.end_unit != 3 || place.num_micro_batches != 2) return failed("another place");
  /* Units 1 and 2 have no parameters. */
  const size_t unit_elements[3] = {1, 0, 0};
  Model model = {0};
  const hdtTrainStage_t stage = {.context = &model,
                                 .unit_elements = unit_elements,
                                 .forward = forward,
                                 .backward = backward,
                                 .update = update};
  hdtTrainer_t trainer = NULL;
  hdtTrainConfig_t config = HDT_TRAIN_CONFIG_INIT;
  config.parameter_type = HDT_FLOAT64;
  if (hdtTrainCreate(comm, &layout, &stage, &config, &trainer) != HDT_ERR_INVALID_ARGUMENT)
    return failed("gradients in another type");
  config.gradient_type = HDT_FLOAT64;
  if (hdtTrainCreate(comm, &layout, &stage, &config, &trainer) != HDT_SUCCESS) return failed("a trainer");
  void* weight = NULL;
  void* gradient = NULL;
  if (hdtTrainUnitMemory(trainer, 0, &weight, &gradient) != HDT_SUCCESS) return failed("memory");
  model.weight = weight;
  model.gradient = gradient;
  if (hdtTrainUnitMemory(trainer, 3, &weight, &gradient) != HDT_ERR_INVALID_ARGUMENT)
    return failed("a unit that is not there");
  hdtTrainStep_t done;
  for (int step = 0; step < 100; ++step) {
    if (hdtTrainStep(trainer, step, &done) != HDT_SUCCESS) return failed("a step");
    if (done.tokens != 8) return failed("other tokens");
  }
  printf("weight %.4f, loss %.4f\n", *model.weight, done.loss);
  hdtTrainLeave(trainer);
  if (hdtTrainStep(trainer, 100, &done) != HDT_ERR_INVALID_USAGE) return failed("a step after the end");
  hdtTrainDestroy(trainer);
  hdtTrainDestroy(NULL);
  layout.num_layers = 0;
  if (hdtTrainPlaceOf(&layout, 1, 0, &place) != HDT_ERR_INVALID_ARGUMENT) return failed("no layers");
  return hdtCommDestroy(comm) == HDT_SUCCESS ? 0 : 1;
}
