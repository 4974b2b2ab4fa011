// slowed_compute.cc: wraps a TextCompute and measures CLOCK_THREAD_CPUTIME_ID around its work.
#include "training/engine/slowed_compute.h"

#include <time.h>

#include <chrono>
#include <thread>
#include <utility>

namespace hdt::training {
namespace {

using Clock = std::chrono::steady_clock;

std::chrono::nanoseconds thread_cpu_time() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::nanoseconds(now.tv_nsec);
}

// One piece of work, from its construction to stretch().
class Piece {
 public:
  // Sleeps until the piece has taken `factor` times its CPU time of wall time. Wall time that has passed
  // already counts.
  void stretch(double factor) const {
    const auto whole = std::chrono::duration<double, std::nano>(thread_cpu_time() - cpu_) * factor;
    std::this_thread::sleep_until(begin_ + std::chrono::duration_cast<Clock::duration>(whole));
  }

 private:
  Clock::time_point begin_ = Clock::now();
  std::chrono::nanoseconds cpu_ = thread_cpu_time();
};

// Everything but the three pieces of work is passed on.
class SlowedCompute final : public TextCompute {
 public:
  SlowedCompute(std::unique_ptr<TextCompute> compute, double factor)
      : compute_(std::move(compute)), factor_(factor) {}

  NumberType type() const override { return compute_->type(); }
  UnitRange units() const override { return compute_->units(); }
  std::vector<TensorInfo> tensors(int unit) const override { return compute_->tensors(unit); }
  void bind(int unit, TypedSpan parameters, TypedSpan gradients) override {
    compute_->bind(unit, parameters, gradients);
  }
  void initialize(int unit, uint64_t seed) override { compute_->initialize(unit, seed); }
  bool has_tied_unit() const override { return compute_->has_tied_unit(); }
  bool reads_tokens() const override { return compute_->reads_tokens(); }
  int sequence_length() const override { return compute_->sequence_length(); }
  int64_t vocab_size() const override { return compute_->vocab_size(); }
  size_t activation_elements(int unit, size_t tokens) const override {
    return compute_->activation_elements(unit, tokens);
  }

  // The time in which parameters are waited for is not stretched, either.
  LossSum forward(int slot, const MicroBatch& batch, ConstTypedSpan input, TypedSpan output) override {
    Piece piece;
    MicroBatch slowed = batch;
    if (batch.unit_needed) slowed.unit_needed = stretched(piece, batch.unit_needed);
    const LossSum loss = compute_->forward(slot, slowed, input, output);
    piece.stretch(factor_);
    return loss;
  }

  LossSum evaluate(std::span<const int64_t> samples, ConstTypedSpan input, TypedSpan output) override {
    const Piece piece;
    const LossSum loss = compute_->evaluate(samples, input, output);
    piece.stretch(factor_);
    return loss;
  }

  // A unit's gradient is reported when the slow device would have it. The time in unit_done() (starting
  // a reduction) is not stretched, as it is not the device's.
  void backward(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient,
                const UnitDone& unit_done) override {
    Piece piece;
    compute_->backward(slot, output_gradient, input_gradient, stretched(piece, unit_done));
    piece.stretch(factor_);
  }

  bool has_split_backward() const override { return compute_->has_split_backward(); }
  void backward_input(int slot, ConstTypedSpan output_gradient, TypedSpan input_gradient) override {
    const Piece piece;
    compute_->backward_input(slot, output_gradient, input_gradient);
    piece.stretch(factor_);
  }

  void backward_weights(int slot, const UnitDone& unit_done) override {
    Piece piece;
    compute_->backward_weights(slot, stretched(piece, unit_done));
    piece.stretch(factor_);
  }

  void infer(std::span<const int64_t> tokens, int64_t position, ConstTypedSpan input, TypedSpan output,
             std::span<float> logits) override {
    const Piece piece;
    compute_->infer(tokens, position, input, output, logits);
    piece.stretch(factor_);
  }

 private:
  // Ends the piece under way before the engine is called with a unit, and begins the next one after that.
  std::function<void(int)> stretched(Piece& piece, const std::function<void(int)>& engine) const {
    return [this, &piece, &engine](int unit) {
      piece.stretch(factor_);
      engine(unit);
      piece = Piece();
    };
  }

  std::unique_ptr<TextCompute> compute_;
  double factor_;
};

}  // namespace

std::unique_ptr<TextCompute> make_slowed_compute(std::unique_ptr<TextCompute> compute, double factor) {
  return std::make_unique<SlowedCompute>(std::move(compute), factor);
}

}  // namespace hdt::training
