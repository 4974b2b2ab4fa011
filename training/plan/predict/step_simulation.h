// step_simulation.h: plays one training step of a plan, event by event.
//
// A worker runs the steps of its schedule in order. Messages and reductions are transfers of the network, so
// they slow each other down. After its last step a worker waits for the reductions it takes part in, then
// updates.
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

class StepSimulation {
 public:
  // One replica of each class is played; what comes out is of these.
  StepSimulation(const PredictionInputs& inputs, const EqualReplicas& equal);
  // kConfig when the workers wait for each other for ever (sends that wait under an order not made for it).
  Status run();
  Prediction take() { return std::move(prediction_); }

 private:
  enum class Phase { kSteps, kReducing, kNorm, kUpdating, kDone };
  struct Worker {
    StageCost cost;
    int devices = 1;
    double slowdown = 1;  // while it communicates
    std::vector<training::PipelineStep> steps;
    size_t next = 0;
    Phase phase = Phase::kSteps;
    bool busy = false;  // computing until `until`, if its pace does not change
    double until = 0;
    double work = 0;  // seconds of it left at `paced`, when nothing slows it down
    double pace = 1;
    double paced = 0;
    size_t span = 0;        // of what it computes
    int communicating = 0;  // transfers it takes part in
    // Gradients complete during this computation: when so much work is left, reduction. The next one is the
    // last.
    std::vector<std::pair<double, int>> gradients;
    double waiting_since = -1;  // at its next step; negative: it is not waiting
    int open_reductions = 0;
  };
  // Between neighbouring stages, by sender, direction and micro-batch.
  struct Message {
    double posted = -1;
    double wanted = -1;
    double started = -1;
    double arrived = -1;
  };
  struct RunningReduction {
    int missing = 0;  // owners whose gradient is not complete
    double started = -1;
    double ended = -1;
  };
  struct TransferUse {
    Message* message = nullptr;  // or
    int reduction = -1;
    Span span;
  };
  // Something that happens to a worker at a time: it is done, or a gradient is complete. What has been
  // overtaken by a change of pace is still in the queue, and does nothing when its time comes.
  struct Due {
    double when = 0;
    int worker = 0;                                                       // or kNorm
    bool operator<(const Due& other) const { return when > other.when; }  // earliest on top
  };
  static constexpr int kNorm = -1;

  static int receiver_of(const Span& message) {
    return message.kind == SpanKind::kActivation ? message.worker + 1 : message.worker - 1;
  }
  Message& message(int sender, bool activation, int micro_batch);
  bool advance(int worker);  // one state change, if there is one to make now
  bool take_step(int worker, const training::PipelineStep& step);
  bool send(int worker, bool activation, int micro_batch);
  bool receive(int worker, bool activation, int micro_batch);
  void compute(int worker, SpanKind kind, int micro_batch, double seconds);
  void start_message(int sender, bool activation, int micro_batch, Message& sent);
  void account_wait(Worker& worker, WorkerTime& time, double transfer_started);
  void end_computation(int worker);
  void communicate(int worker, int change);
  void set_pace(int worker);
  void happens(int worker);
  double next_gradient(const Worker& worker) const;
  bool completes_gradients(int worker, const training::PipelineStep& step) const;
  void gradients_during(int worker, double UnitCost::*seconds);
  void gradients_complete(int worker);
  void gradient_ready(int reduction);
  bool finish_reductions(int worker);
  bool finish_norm(int worker);
  void next_event();

  const PredictionInputs& inputs_;
  const EqualReplicas& equal_;
  const Plan& plan_;
  const training::Layout layout_;
  Network network_;
  std::vector<Worker> workers_;
  const std::vector<Reduction>& reductions_;
  std::vector<RunningReduction> running_;
  std::map<std::pair<int, bool>, std::vector<Message>> messages_;  // by sender and direction
  std::map<int, TransferUse> transfers_;
  int at_norm_ = 0;        // workers that wait for the sum of the norm or are past it
  double norm_ends_ = -1;  // once all are there
  std::priority_queue<Due> due_;
  std::vector<int> touched_;  // workers that may go on
  size_t done_ = 0;           // workers
  double now_ = 0;
  Prediction prediction_;
};

}  // namespace hdt::plan
