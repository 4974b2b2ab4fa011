// emulated_compute.cc: sleeps in the place of computing.
#include "training/engine/emulated_compute.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace hdt::training {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point after(Clock::time_point begin, double seconds) {
  return begin + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// Waits until `seconds` after `begin`, and returns that moment, at which the device goes on.
Clock::time_point wait_until(Clock::time_point begin, double seconds) {
  const Clock::time_point end = after(begin, seconds);
  std::this_thread::sleep_until(end);
  return end;
}

class EmulatedCompute final : public StageCompute {
 public:
  EmulatedCompute(int first, std::vector<EmulatedUnit> units, const EmulatedUnit& before,
                  size_t tied_parameters, NumberType type)
      : range_{first, first + static_cast<int>(units.size())},
        units_(std::move(units)),
        before_(before),
        tied_parameters_(tied_parameters),
        type_(type) {}

  NumberType type() const override { return type_; }
  UnitRange units() const override { return range_; }
  bool has_tied_unit() const override { return tied_parameters_ > 0; }
  std::vector<TensorInfo> tensors(int unit) const override {
    return {{.name = fmt::format("emulated.{}", unit),
             .shape = {static_cast<int64_t>(unit == kTiedUnit ? tied_parameters_ : at(unit).parameters)},
             .weight_decay = false}};
  }
  // The memory is there for the messages alone.
  void bind(int /*unit*/, TypedSpan /*parameters*/, TypedSpan /*gradients*/) override {}
  void initialize(int /*unit*/, uint64_t /*seed*/) override {}
  int sequence_length() const override { return 1; }
  size_t activation_elements(int unit, size_t tokens) const override {
    return (unit < range_.first ? before_ : at(unit)).output_elements * tokens;
  }

  // The last stage counts its samples, as tokens without a loss. A sample is two numbers: one that is read,
  // and one that is a target only. The device begins a unit when it has done the one before and the unit's
  // parameters are there. They are waited for in advance, which tells when the last of them came.
  LossSum forward(int /*slot*/, const MicroBatch& batch, ConstTypedSpan /*input*/,
                  TypedSpan output) override {
    Clock::time_point done = Clock::now();
    for (int unit = range_.first; unit < range_.end; ++unit) {
      batch.need(unit);
      done = after(std::max(done, Clock::now()), at(unit).forward);
    }
    std::this_thread::sleep_until(done);
    return {0, output.empty() ? static_cast<int64_t>(batch.samples.size() / 2) : 0};
  }

  void backward(int /*slot*/, ConstTypedSpan /*output_gradient*/, TypedSpan /*input_gradient*/,
                const UnitDone& unit_done) override {
    each_unit(unit_done, [](const EmulatedUnit& unit) { return unit.input_gradient + unit.weight_gradient; });
  }

  bool has_split_backward() const override { return true; }
  void backward_input(int /*slot*/, ConstTypedSpan /*output_gradient*/,
                      TypedSpan /*input_gradient*/) override {
    double seconds = 0;
    for (const EmulatedUnit& unit : units_) seconds += unit.input_gradient;
    wait_until(Clock::now(), seconds);
  }
  void backward_weights(int /*slot*/, const UnitDone& unit_done) override {
    each_unit(unit_done, [](const EmulatedUnit& unit) { return unit.weight_gradient; });
  }

 private:
  const EmulatedUnit& at(int unit) const { return units_[static_cast<size_t>(unit - range_.first)]; }

  // Waits for the units, last first. A device does not stop for what the rank does in unit_done(), such as
  // starting a reduction.
  template <typename Seconds>
  void each_unit(const UnitDone& unit_done, Seconds seconds) const {
    Clock::time_point now = Clock::now();
    for (int unit = range_.end - 1; unit >= range_.first; --unit) {
      now = wait_until(now, seconds(at(unit)));
      unit_done(unit);
    }
  }

  UnitRange range_;
  std::vector<EmulatedUnit> units_;
  EmulatedUnit before_;
  size_t tied_parameters_;
  NumberType type_;
};

}  // namespace

std::unique_ptr<StageCompute> make_emulated_compute(int first, std::vector<EmulatedUnit> units,
                                                    const EmulatedUnit& before, size_t tied_parameters,
                                                    NumberType type) {
  return std::make_unique<EmulatedCompute>(first, std::move(units), before, tied_parameters, type);
}

}  // namespace hdt::training
