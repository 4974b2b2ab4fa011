// engine_set.h: the engines of a daemon, as the control thread reaches them: through their mailboxes.
//
// Engines are asked in one of two ways: on_one() and on_every() continue on the control thread when one or
// all have answered; ask() blocks its caller. No engine ever blocks on the control thread, so ask() cannot
// deadlock.
//
// Owner: Control. The set changes only before the control thread starts.
#pragma once

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "base/contained.h"
#include "base/mailbox.h"
#include "daemon/engine/engine.h"

namespace hdt::daemon {

// The number of engines is that of `node.threads` for the daemon's life. An engine's index is the same on
// every node: links connect engines of one index.
class EngineSet {
 public:
  // `control`, the control thread's, must outlive this object.
  explicit EngineSet(Mailbox& control) : control_(control) {}

  void add(std::unique_ptr<Engine> engine) { engines_.push_back(std::move(engine)); }
  size_t size() const { return engines_.size(); }
  Engine& at(size_t engine) const { return *engines_[engine]; }
  auto begin() const { return engines_.begin(); }
  auto end() const { return engines_.end(); }

  // Runs `work` with the engine on its thread; `work` must be copyable, as std::function is. Does not block.
  template <typename Work>
  void post(size_t engine, Work work) const {
    at(engine).post([&e = at(engine), work = std::move(work)] { work(e); });
  }
  template <typename Work>
  void post_all(const Work& work) const {
    for (size_t engine = 0; engine < size(); ++engine) post(engine, work);
  }
  // Runs `work` with that engine on its thread, and then `then` on the control thread. An exception of `work`
  // counts as done. Does not block. `then` sees what `work` has written. An engine that hangs, or ends
  // with the daemon, leaves `then` out: whoever waits for it needs a deadline of its own.
  template <typename Work, typename Then>
  void on_one(size_t engine, Work work, Then then) const {
    post(engine, [&control = control_, work = std::move(work), then = std::move(then)](Engine& e) {
      (void)contained("a question to an engine", [&] { work(e); });
      control.post(then);
    });
  }
  // Runs `work` with every engine, each on its thread, and then `then` on the control thread when all have
  // done it. Otherwise as on_one().
  template <typename Work, typename Then>
  void on_every(Work work, Then then) const {
    const auto left = std::make_shared<size_t>(size());  // touched on the control thread only
    const auto shared = std::make_shared<Then>(std::move(then));
    for (size_t engine = 0; engine < size(); ++engine) {
      on_one(engine, work, [shared, left] {
        if (--*left == 0) (*shared)();
      });
    }
  }
  // Runs `question` with every engine, one after the other, and blocks until all have answered. True: all
  // answered yes. Not by an engine's thread, and not after Engine::stop(): a stopped engine would never
  // answer.
  template <typename Question>
  bool ask(const Question& question) const {
    bool all = true;
    for (size_t i = 0; i < size(); ++i) {
      std::promise<bool> answer;
      auto future = answer.get_future();
      // The references are valid because this waits for the answer.
      post(i, [&answer, &question](Engine& engine) {
        bool said = false;
        (void)contained("a question to an engine", [&] { said = question(engine); });
        answer.set_value(said);
      });
      all &= future.get();
    }
    return all;
  }

 private:
  Mailbox& control_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

}  // namespace hdt::daemon
