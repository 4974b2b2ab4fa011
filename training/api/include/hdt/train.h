/* train.h: the C interface of HDT's training engine (libhdttrain): training of a model of the caller's own on
 * unequal devices, as replicas that are each cut into their own pipeline stages.
 *
 * The model is a row of *units* of parameters: unit 0 (an embedding, say), one unit for each of `num_layers`
 * layers, and unit num_layers + 1 (the head, which ends in the loss). A rank is one stage of one replica and
 * holds a consecutive range of units. The caller computes, in the functions of hdtTrainStage_t. The engine
 * decides when (one forward, one backward), moves activations and their gradients between stages, sums each
 * unit's gradients over the ranks that hold it while backward goes on, and gives every token of the global
 * batch the same weight, whichever replica it falls to. So a step is that of one process with the same global
 * batch, to rounding.
 *
 * Parameters, activations and their gradients are numbers of one type (hdtTrainConfig_t): fp32, bf16, fp16 or
 * fp64. Memory of them is `void*` here. Samples have numbers: step s trains on the samples s *
 * global_batch_size and the next ones, of which each replica takes a range. What a number stands for is the
 * caller's choice, and must be the same on all ranks.
 *
 * Results and errors: as in hdt.h; hdtTrainGetLastError() has the message of the calling thread's last
 * failure. A step that fails on one rank fails on all ranks within seconds, and the trainer is of no more
 * use; it must still be destroyed.
 *
 * Thread safety: one thread at a time may use a trainer. Calls about different trainers are independent. The
 * functions of hdtTrainStage_t are called by the thread that is in hdtTrainStep, and by no other. */
#ifndef HDT_TRAIN_H
#define HDT_TRAIN_H

#include "hdt/hdt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One row of whole numbers. `values` may be NULL if `count` is 0. */
typedef struct {
  const int* values;
  size_t count;
} hdtTrainRow_t;

/* How the ranks share the work: the flags of the same names that `hdt-train --help` explains. The same on all
 * ranks. 0, or a row without values: the flag is not given. */
typedef struct {
  int num_layers;
  int pipeline_model_parallel_size;
  /* For each kind of device the number of its stages, then their layers. One row holds for every replica;
   * otherwise there is one for each replica. */
  const hdtTrainRow_t* hetero_pipeline_stages;
  size_t hetero_pipeline_stages_count;
  /* 1: ranks are all stages of replica 0, then all of replica 1, and so on; 0: the first stages of all
   * replicas, then the second stages, and so on. */
  int use_tp_pp_dp_mapping;
  int micro_batch_size;
  /* n0 value0 n1 value1 ...: the first n0 replicas have value0, the next n1 value1, and so on. */
  hdtTrainRow_t micro_batch_size_per_dp;
  hdtTrainRow_t num_micro_batches_per_dp;
  int global_batch_size;
} hdtTrainLayout_t;

/* The place of one rank in a layout. */
typedef struct {
  int replica;
  int replicas;
  int stage;
  int stages;        /* of this replica */
  int first_unit;    /* the stage holds the units from here ... */
  int end_unit;      /* ... to the one before this */
  int previous_rank; /* of the stage before and of the one behind; -1: there is none */
  int next_rank;
  int micro_batch_size;      /* samples */
  int num_micro_batches;     /* of this replica in a step */
  int64_t global_batch_size; /* samples of a step, of all replicas */
} hdtTrainPlace_t;

/* Works out the place of `rank` of `world_size`. Local: nothing is sent. HDT_ERR_INVALID_ARGUMENT: the layout
 * breaks a constraint; the message names it and by how much it is missed. */
HDT_API hdtResult_t hdtTrainPlaceOf(const hdtTrainLayout_t* layout, int world_size, int rank,
                                    hdtTrainPlace_t* place);

/* To be called once for each unit of a backward pass (see below). */
typedef void (*hdtTrainUnitDone_t)(void* engine, int unit);

/* The caller's part: the sizes of a stage, and what it computes. Functions return 0, or another value if they
 * have failed, which fails the step; they must not throw. */
typedef struct {
  void* context; /* the first argument of each function */
  /* The number of all parameters of each unit of this stage, first unit first. */
  const size_t* unit_elements;
  /* The numbers of one sample that come from the stage before, and that go to the one behind; 0: no such
   * stage. */
  size_t input_elements;
  size_t output_elements;
  /* Computes one micro-batch of `count` samples, whose numbers are in `samples` on the first and the last
   * stage (NULL on those between, which need none). `input` has count * input_elements numbers and is NULL on
   * the first stage, `output` count * output_elements and NULL on the last; both are of the parameters' type.
   * The last stage sets *loss, the loss summed over what it counts, and *tokens, how many that are; the
   * others leave both as they are. What backward() needs is kept under `slot` (a small number, used again
   * after the backward). `input` stays valid and unchanged until then. */
  int (*forward)(void* context, int slot, const int64_t* samples, size_t count, const void* input,
                 void* output, double* loss, int64_t* tokens);
  /* Adds the derivative of the summed loss of the micro-batch in `slot` to the gradients in memory (see
   * hdtTrainUnitMemory), and writes that by its input to `input_gradient` (NULL on the first stage); both
   * have the loss factor in them. `output_gradient` is NULL on the last stage, where the derivative of the
   * loss is `loss_factor`: 1, or with a loss scale another number; the other stages need not look at it.
   * Calls unit_done(engine, unit) for every unit, the last one first, as soon as that unit's gradients have
   * been added. */
  int (*backward)(void* context, int slot, const void* output_gradient, void* input_gradient,
                  double loss_factor, hdtTrainUnitDone_t unit_done, void* engine);
  /* Updates the parameters, at the end of a step. The gradients in memory, multiplied by `gradient_scale`,
   * are those of the mean loss over all tokens of the step, clipped, without the loss factor. The engine sets
   * them to 0 before the next step. Not called if training has diverged, or if the step is skipped. Where it
   * fails, the other ranks have made the step; their next one fails. */
  int (*update)(void* context, double gradient_scale);
} hdtTrainStage_t;

/* The result of a step, the same on all ranks. */
typedef struct {
  double loss; /* mean over the tokens of all replicas, before the update */
  int64_t tokens;
  double gradient_norm; /* over all parameters, before clipping */
  /* 1: the loss or the gradient norm is not finite. Nothing was updated, and there is no further step. */
  int diverged;
  int diverged_rank; /* the first whose own part is not finite; -1: only the sum of all parts is not */
  /* 1: gradients were too large for their type. Nothing was updated; the loss scale falls, and training goes
   * on with the next step. */
  int skipped;
  double loss_scale; /* of this step; 0: the loss is not scaled */
} hdtTrainStep_t;

/* A rank's part of a training run, from hdtTrainCreate to hdtTrainDestroy. */
typedef struct hdtTrainer* hdtTrainer_t;

/* How to train, the same on all ranks. Start from HDT_TRAIN_CONFIG_INIT. */
typedef struct {
  size_t size;               /* sizeof(hdtTrainConfig_t), for compatibility */
  double clip_gradient_norm; /* gradients whose norm is larger are scaled down to it; 0: no clipping */
  /* Of parameters, activations and the gradients of these: HDT_FLOAT32, HDT_BFLOAT16, HDT_FLOAT16 or
   * HDT_FLOAT64. In HDT_FLOAT64 the sums of the owners of a unit are combined in the order of replicas. */
  hdtDataType_t parameter_type;
  /* Of the parameters' gradients in memory, in which they are added up over micro-batches and ranks: the
   * parameters' type, or HDT_FLOAT32 where that has 16 bits. */
  hdtDataType_t gradient_type;
  /* The factor of the loss before its backward. Above 0: always this one. 0: with parameters in HDT_FLOAT16 a
   * dynamic one, as Megatron's: a step whose gradients are not finite is skipped on all ranks, and the scale
   * is halved, where `hysteresis` such steps are needed for the first time; after `window` steps without one
   * it doubles. It does not fall below the minimum: then, and with a constant scale, training has diverged.
   * With other types 0 is no scale. Scales are from 1e-30 to 1e30. A run that goes on elsewhere begins with
   * the scale of its last step (hdtTrainStep_t) as the initial one. */
  double loss_scale;
  double initial_loss_scale;
  double min_loss_scale;
  int64_t loss_scale_window;
  int64_t loss_scale_hysteresis;
} hdtTrainConfig_t;
#define HDT_TRAIN_CONFIG_INIT \
  { sizeof(hdtTrainConfig_t), 0, HDT_FLOAT32, HDT_FLOAT32, 0, 4294967296.0, 1, 1000, 2 }

/* Makes a trainer. Collective over `comm`, whose ranks are those of the layout: it makes groups of its own,
 * of the classes "pp" (each replica) and "dp" (ranks that hold the same units), and does not use `comm`
 * later. Layout, stage and config are copied; what stage->context points to must outlive the trainer. A
 * config of NULL is HDT_TRAIN_CONFIG_INIT. HDT_ERR_INVALID_ARGUMENT: the layout, a size or a setting is
 * wrong. HDT_ERR_MISMATCH: the ranks' configs differ. Other codes: of the calls that make groups. */
HDT_API hdtResult_t hdtTrainCreate(hdtComm_t comm, const hdtTrainLayout_t* layout,
                                   const hdtTrainStage_t* stage, const hdtTrainConfig_t* config,
                                   hdtTrainer_t* trainer);

/* Where the parameters and gradients of one unit of this stage are: unit_elements numbers each, of the types
 * in the config, valid until the trainer is destroyed. Both are 0 at first: the caller writes start values,
 * the same on all ranks that hold the unit. HDT_ERR_INVALID_ARGUMENT: this stage does not hold the unit. */
HDT_API hdtResult_t hdtTrainUnitMemory(hdtTrainer_t trainer, int unit, void** parameters, void** gradients);

/* Runs one step; all ranks call it with the same `step` (from 0), which says what samples it is of.
 * HDT_ERR_MISMATCH: they have not; nothing was updated.
 * HDT_ERR_ABORTED: a function of the stage has failed, on this rank or another. HDT_ERR_INVALID_USAGE: an
 * earlier step has failed or diverged; the message repeats why. Other codes: of a failed communicator. */
HDT_API hdtResult_t hdtTrainStep(hdtTrainer_t trainer, int64_t step, hdtTrainStep_t* result);

/* Leaves the trainer's groups: there is no further step. The memory of units stays until hdtTrainDestroy.
 * NULL is allowed. */
HDT_API void hdtTrainLeave(hdtTrainer_t trainer);

/* Leaves the trainer's groups and frees its memory. NULL is allowed. Ranks that are in a step fail. */
HDT_API void hdtTrainDestroy(hdtTrainer_t trainer);

/* The message of the calling thread's last failure in this library; "" if there was none. Valid until that
 * thread's next call. */
HDT_API const char* hdtTrainGetLastError(void);

#ifdef __cplusplus
}
#endif

#endif
