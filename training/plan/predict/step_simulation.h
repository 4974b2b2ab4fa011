// step_simulation.h: plays one training step of a plan, event by event.
//
// A worker runs the steps of its schedule in order. Messages and reductions are transfers of the
// network, so they slow each other down. After its last step a worker waits for the reductions that it
// takes part in, then for the sum of the norm if the runtime has one, then it updates. With sharded optimizer
// states it updates its shards, and the parameters come under the first forward of the step after: the step
// that is played is any of a long run, and so begins with the gathers of the update before it.
//
// The simulation alternates between two activities until all workers are done:
// 1. Every worker that an event has touched goes on as far as it can without time passing.
// 2. Time goes on to the next event: a transfer ends, a computation ends, or a gradient is complete
//    during a computation. The step ends when the last worker has updated.
#pragma once

#include <cstddef>
#include <map>
#include <queue>
#include <utility>
#include <vector>

#include "base/status.h"
#include "training/engine/pipeline_schedule.h"
#include "training/plan/predict/equal_replicas.h"
#include "training/plan/predict/network.h"
#include "training/plan/predict/prediction.h"
#include "training/plan/predict/reductions.h"
#include "training/plan/predict/stage_cost.h"

namespace hdt::plan {

// Plays one step, once: construct, run(), take(). Used by one thread. `inputs` and `equal` must outlive
// it.
class StepSimulation {
 public:
  // Only one replica of each class is played; the results are for these (EqualReplicas::of_all).
  StepSimulation(const PredictionInputs& inputs, const EqualReplicas& equal);
  // kConfig if the workers wait for each other for ever. That happens if sends wait for their receivers
  // under an order that is not made for it.
  Status run();
  // The result of run(), without peak_memory_bytes. Call it once.
  Prediction take() { return std::move(prediction_); }

 private:
  // The states of a worker, in this order. kSteps: its schedule. kReducing: waiting for its reductions.
  // kNorm: waiting for the sum of the norm; passed at once if the runtime has none. kUpdating: the
  // optimizer.
  enum class Phase { kSteps, kReducing, kNorm, kUpdating, kDone };
  // The state of one stage of one played replica.
  struct Worker {
    std::vector<StageCost> chunks;
    int devices = 1;
    // How many times longer computation takes while the worker communicates.
    double slowdown = 1;
    std::vector<training::PipelineStep> steps;
    // The next one of `steps`.
    size_t next = 0;
    Phase phase = Phase::kSteps;
    // The worker computes. The following five members describe that computation.
    bool busy = false;
    // When it ends if its pace does not change. After the update: when the worker was done.
    double until = 0;
    // Seconds of work that were left at the time `paced`, counted at full pace.
    double work = 0;
    // Work per second since `paced`: 1, or 1 / slowdown while the worker communicates.
    double pace = 1;
    double paced = 0;
    // Index into the prediction's spans.
    size_t span = 0;
    // The sums over the devices of its tensor-parallel group that follow the computation, as one transfer;
    // and whether they are under way. They belong to the computation: its span and its time have them.
    TensorSums sums;
    bool summing = false;
    // Transfers under way that the worker takes part in. Its pace depends on whether there are any.
    int communicating = 0;
    // The gradients that become complete during this computation: (work left at that moment, reduction).
    // Sorted by work, and taken from the back, as less and less work is left.
    std::vector<std::pair<double, int>> gradients;
    // When the worker began to wait at its next step; negative if it does not wait.
    double waiting_since = -1;
    // Reductions with this worker that have not ended.
    int open_reductions = 0;
    // With sharded optimizer states: by chunk and unit of it, the reduction whose gather brings the
    // parameters that other owners have updated; -1: none does. Empty without them.
    std::vector<std::vector<int>> gathers;
    int tied_gather = -1;  // the same of the tied matrix, which all units of the worker wait for
    // Gathers with this worker that have not ended.
    int open_gathers = 0;
    // The units of the chunk that its first forward has computed so far.
    size_t computed_units = 0;
  };
  // One of the chunks of a worker.
  struct Place {
    int worker = 0;
    int chunk = 0;
  };
  // A message between neighbouring virtual stages. The four times are negative until they have come.
  struct Message {
    // The sender has reached its send.
    double posted = -1;
    // The receiver has reached its receive.
    double wanted = -1;
    // The transfer has begun: with `posted`, or for sends that wait for their receiver with the later
    // one of `posted` and `wanted`.
    double started = -1;
    // The transfer has ended.
    double arrived = -1;
  };
  // The state of one of `reductions_`, or of its gather.
  struct RunningReduction {
    // Owners (of those that are played) whose gradient is not complete. At 0 the transfer begins.
    int missing = 0;
    double started = -1;
    double ended = -1;
  };
  // The purpose of a transfer of the network: a message, sums of the span's worker, or else a reduction.
  struct TransferUse {
    // Points into messages_, whose vectors never grow after the constructor. Null for a reduction and a
    // gather.
    Message* message = nullptr;
    int reduction = -1;
    bool gather = false;
    // The span that shows the transfer. Its end is set when the transfer ends.
    Span span;
    bool tensor_sums = false;
  };
  // Something that happens to a worker at a given time: its computation ends, or a gradient is complete.
  // A change of pace makes entries obsolete without removing them; happens() finds nothing to do then.
  struct Due {
    double when = 0;
    // Or kNorm: the sum of the norm is there, for all workers.
    int worker = 0;
    // Reversed, so that the earliest entry is on top of the queue.
    bool operator<(const Due& other) const { return when > other.when; }
  };
  static constexpr int kNorm = -1;

  // The virtual stage behind `place` (distance 1) or before it (-1) in the same replica. There must be one.
  Place neighbour(Place place, int distance) const;
  int receiver_of(const Span& message) const;
  // By sender, direction and micro-batch.
  Message& message(Place sender, bool activation, int micro_batch);
  // Makes one change of a worker's state, if one can be made now. False: it has to wait for an event.
  bool advance(int worker);
  // Notes which gather brings the parameters of which unit, and starts the first gather of each range.
  void start_gathers();
  // The gather of this reduction has ended, and the next one of its range starts.
  void gather_ended(int reduction);
  // Whether the chunk's next unit has its parameters.
  bool has_parameters(const Worker& worker, int chunk) const;
  // A chunk's first forward: computes the units up to the next one whose parameters are not there, and waits
  // for those.
  bool first_forward(Place at);
  // Begins the transfer of a reduction, or of the allgather of its parameters.
  void start_of_owners(int reduction, bool gather);
  // The following three: false if the step has to wait.
  bool take_step(int worker, const training::PipelineStep& step);
  // `activation`: to the next virtual stage; otherwise a gradient to the one before.
  bool send(Place from, bool activation, int micro_batch);
  bool receive(Place at, bool activation, int micro_batch);
  // Posts the receive behind a send, where both are one exchange with a neighbour.
  void post_exchanged(Place from, bool activation);
  // The receiver of this message is there.
  void want(Place sender, bool activation, int micro_batch);
  // Begins a computation of `seconds` at full pace, which `sums` follow, and its span.
  void compute(Place at, SpanKind kind, int micro_batch, double seconds, const TensorSums& sums = {});
  // Begins the transfer; both ends communicate from now on.
  void start_message(Place sender, bool activation, int micro_batch, Message& sent);
  // Divides the wait that ends now between exposed_pipeline and bubble.
  void account_wait(Worker& worker, WorkerTime& time, double transfer_started);
  // Begins the sums that follow the computation, if there are any.
  void end_computation(int worker);
  // Closes the span, and lets the worker go on.
  void close_computation(int worker);
  // One transfer of the worker begins (change 1) or ends (-1).
  void communicate(int worker, int change);
  // Adapts the pace of a computation under way to `communicating`.
  void set_pace(int worker);
  // Does what is due for a worker now, if it is not obsolete.
  void happens(int worker);
  // When the worker's next gradient is complete, or when its computation ends if there is none.
  double next_gradient(const Worker& worker) const;
  // Whether this backward is the last one of its chunk, with gradients reduced while it runs.
  bool completes_gradients(int worker, const training::PipelineStep& step) const;
  // Notes when the gradients of the computation that begins now are complete.
  void gradients_during(Place at, double UnitCost::*seconds);
  void gradients_complete(int worker);
  // One more owner's part of a reduction is complete; the last one starts the transfer.
  void gradient_ready(int reduction);
  // Ends the phase kReducing if all reductions of the worker have ended.
  bool finish_reductions(int worker);
  // Ends the phase kNorm, and begins the update.
  bool finish_norm(int worker);
  // Lets time pass until the next event, and does what happens then.
  void next_event();

  const PredictionInputs& inputs_;
  const EqualReplicas& equal_;
  const Plan& plan_;
  const training::Layout layout_;
  Network network_;
  // By number of the played plan's worker.
  std::vector<Worker> workers_;
  const std::vector<Reduction>& reductions_;
  // By index into reductions_.
  std::vector<RunningReduction> running_;
  // By range: the reductions whose gathers have not started, in falling order.
  std::vector<std::vector<int>> gathers_left_;
  std::vector<bool> gathered_;  // by index into reductions_: its gather has ended
  // By sender and direction (true: an activation), then chunk x the replica's micro-batches + micro-batch.
  std::map<std::pair<int, bool>, std::vector<Message>> messages_;
  // By the network's id: the transfers under way.
  std::map<int, TransferUse> transfers_;
  // Workers that wait for the sum of the norm or are past it.
  int at_norm_ = 0;
  // When the sum of the norm is there; negative until all workers have reached it.
  double norm_ends_ = -1;
  std::priority_queue<Due> due_;
  // Workers that may be able to go on. May hold a worker more than once.
  std::vector<int> touched_;
  // Workers in Phase::kDone.
  size_t done_ = 0;
  // Seconds since the step began.
  double now_ = 0;
  Prediction prediction_;
};

}  // namespace hdt::plan
