// control_changes.cc: the control thread's part in changing a class (class_change.h). A node takes part
// in one change at a time (`change_`): its own, or one that another node asks for. A change that is under
// way elsewhere and meets a busy node is refused.
//
// This node asks (hdtctl class set, or SIGHUP): change_class() -> open_for_change() -> engines propose it
// to the other nodes -> on_proposed() from each engine -> end_change(), which commits it everywhere or
// gives it up.
//
// Another node asks: on_prepare() for each group that it shares with this one -> open_for_change() ->
// answer_askers() -> on_commit().
#include <algorithm>
#include <random>

#include "base/log.h"
#include "base/users.h"
#include "daemon/control/control.h"
#include "daemon/links/own_host.h"

namespace hdt::daemon {

namespace {

// How long, in ms, a change may take: less than hdtctl waits for its answer. A node that another one has
// asked forgets the change somewhat later, if it never learns how it ended.
constexpr int64_t kChangeMs = 8'000;
constexpr int64_t kForgetMs = 12'000;
// How often a reload is tried, at intervals of 50 to 450 ms.
constexpr int kReloadTries = 40;
constexpr const char* kBusy = "another change of a class is under way; try again";

// The number of a change. Never 0.
uint64_t random_number() {
  std::random_device device;
  return (uint64_t{device()} << 32 | device()) | 1;
}

}  // namespace

// By value: engines call it on their threads while config_ changes.
PolicyOfClass policies_of(const Config& config) {
  return [config](const std::string& group_class) {
    const ClassConfig policy = config.class_named(group_class);
    return transport::SharePolicy{policy.priority == "latency", static_cast<uint32_t>(policy.weight)};
  };
}

// Computes what this node would be after the change, and whether it can be that. keep_order() puts the
// NICs that are opened already first and in their order, since engines know devices by their index.
Status Control::begin_change(uint64_t number, Config config, const std::string& settings, bool from_file) {
  if (change_) return {Code::kInvalidUsage, kBusy};
  auto plan = make_plan(config, plan_.folders(), own_host_only_);
  if (!plan.is_ok()) return plan.status();
  NodeChange change;
  change.number = number;
  change.config = std::move(config);
  change.settings = settings;
  change.from_file = from_file;
  change.plan = plan.take();
  HDT_RETURN_IF_ERROR(change.plan.keep_order(opened_));
  change.until = Deadline::after_ms(kForgetMs);
  change_ = std::move(change);
  return Status::ok();
}

// Has the engines open the devices that they lack, then continues with `then` on the control thread. The
// plan's NICs begin with those that are opened.
void Control::open_for_change(std::function<void(const Status&)> then) {
  const auto& wanted = change_->plan.nics();
  const std::vector<BackendNic> more(wanted.begin() + static_cast<std::ptrdiff_t>(opened_.size()),
                                     wanted.end());
  auto opened = std::make_shared<std::vector<Status>>(engines_.size(), Status::ok());
  auto ends = std::make_shared<std::vector<std::vector<RailEnd>>>(engines_.size());
  on_every_engine(
      [more, opened, ends](Engine& engine) {
        (*opened)[engine.index()] = engine.open_more(more);
        (*ends)[engine.index()] = engine.rail_ends();
      },
      [this, number = change_->number, more, opened, ends, then = std::move(then)] {
        // Engines keep what they have opened, even if the change fails afterwards. All must have the same
        // devices; if one has failed to open them, this node takes part in no more changes.
        const auto failed =
            std::find_if(opened->begin(), opened->end(), [](const Status& s) { return !s.is_ok(); });
        if (failed == opened->end()) {
          opened_.insert(opened_.end(), more.begin(), more.end());
          node_.rails = *ends;
        } else {
          devices_differ_ = failed->message();
        }
        // The change may have timed out, or have been replaced, meanwhile.
        if (!change_ || change_->number != number) return;
        change_->open = failed == opened->end();
        then(failed == opened->end() ? Status::ok() : *failed);
      });
}

EndsOfClass Control::ends_of_change(bool all) const {
  return [before = config_, after = change_->config, plan = change_->plan, rails = node_.rails,
          all](const std::string& name) -> std::optional<std::vector<std::vector<RailEnd>>> {
    // Copies of what is needed, since engines call the function on their threads.
    if (!all && before.class_named(name) == after.class_named(name)) return std::nullopt;
    return plan.ends_for(name, rails);
  };
}

void Control::change_class(Config config, const std::string& settings,
                           std::function<void(const Status&)> done) {
  // 1. This node must be able to change.
  if (!devices_differ_.empty()) return done({Code::kSystem, devices_differ_});
  const uint64_t number = random_number();
  const Status begun = begin_change(number, std::move(config), settings, settings.empty());
  if (!begun.is_ok()) return done(begun);
  change_->done = std::move(done);
  change_->engines_left = engines_.size();
  change_->until = Deadline::after_ms(kChangeMs);
  // 2. Engines open devices. 3. Each engine asks the other nodes of its groups; on_proposed() collects
  //    the answers.
  open_for_change([this](const Status& opened) {
    if (!opened.is_ok()) return end_change(opened);
    for (auto& engine : engines_) {
      engine->post([e = engine.get(), number = change_->number, text = change_->settings,
                    ends = ends_of_change(false)] { e->mover().propose(number, text, ends); });
    }
  });
}

void Control::on_proposed(uint64_t number, const Status& answer) {
  // The answer may belong to a change that has timed out. Without `done` the change is another node's.
  if (!change_ || change_->number != number || !change_->done) return;
  if (!answer.is_ok()) return end_change(answer);
  if (--change_->engines_left == 0) end_change(Status::ok());
}

// The end of a change that this node asked for: all nodes do it, or none. `done` runs last, as it may
// begin another change.
void Control::end_change(const Status& outcome) {
  const auto done = std::move(change_->done);
  for (auto& engine : engines_) {
    engine->post([e = engine.get(), number = change_->number, commit = outcome.is_ok()] {
      e->mover().finish(number, commit);
    });
  }
  if (outcome.is_ok()) adopt_change();
  change_.reset();
  done(outcome);
}

// The one place where config_ and plan_ change after start(). Engines get the new priorities and weights;
// new groups see the new plan.
void Control::adopt_change() {
  config_ = change_->config;
  if (change_->from_file) {
    configured_ = config_;
    live_.as_configured();
  } else {
    live_.changed(change_->settings);
  }
  plan_ = change_->plan;
  for (auto& engine : engines_) {
    engine->post([e = engine.get(), policies = policies_of(config_)] { e->set_policies(policies); });
  }
}

// Another node asks. Each group that it shares with this node asks by its own engine, so this is called
// once per group; the first call begins the change, the others join it.
void Control::on_prepare(const NodeChange::Asker& asker, const ClassPrepare& prepare) {
  const auto refuse = [&](const Status& why) {
    engines_[asker.engine]->post([e = engines_[asker.engine].get(), asker, number = prepare.change, why] {
      e->mover().prepare(asker.group, number, why);
    });
  };
  if (!devices_differ_.empty()) return refuse({Code::kSystem, devices_differ_});
  if (change_ && change_->number == prepare.change) {
    change_->askers.push_back(asker);
    if (change_->open) answer_askers(Status::ok());
    return;
  }
  // Without settings every node goes by its own file: the one that it was asked to read, if it was, else
  // it stays as it is.
  const bool from_file = prepare.settings.empty() && reload_;
  Config config = from_file ? with_classes_of(*reload_) : config_;
  const ConfigPairs settings = parse_settings(prepare.settings);
  // Another node may change classes only, no other keys.
  const bool of_classes = std::all_of(settings.begin(), settings.end(),
                                      [](const auto& s) { return s.first.starts_with("class."); });
  const Status set = of_classes ? override_config(config, settings, "hdtctl class set on another node")
                                : Status(Code::kInvalidArgument, "a change of classes names other keys");
  if (!set.is_ok()) return refuse(set);
  const Status begun = begin_change(prepare.change, std::move(config), prepare.settings, from_file);
  if (!begun.is_ok()) return refuse(begun);
  change_->askers.push_back(asker);
  open_for_change([this](const Status& opened) {
    answer_askers(opened);
    if (!opened.is_ok()) change_.reset();
  });
}

void Control::answer_askers(const Status& opened) {
  const EndsOfClass ends_of = ends_of_change(true);
  for (const NodeChange::Asker& asker : std::exchange(change_->askers, {})) {
    // `all` is true, so each class has ends.
    Result<std::vector<RailEnd>> ends = opened;
    if (opened.is_ok()) ends = (*ends_of(asker.group_class))[asker.engine];
    engines_[asker.engine]->post([e = engines_[asker.engine].get(), group = asker.group,
                                  number = change_->number,
                                  ends] { e->mover().prepare(group, number, ends); });
  }
}

void Control::on_commit(uint64_t number, bool commit) {
  // Each group's engine reports the commit; the first report ends the change.
  if (!change_ || change_->number != number || change_->done) return;
  if (commit) adopt_change();
  change_.reset();
}

// First a reload that is due, then the deadline of the change under way.
void Control::on_change_time() {
  if (reload_at_.expired()) {
    reload_at_ = Deadline::never();
    if (reload_) reload();
  }
  if (!change_ || !change_->until.expired()) return;
  // This node asked: not all have answered in time. Otherwise the node that asked is gone; forgetting the
  // change frees this node for others.
  if (change_->done)
    return end_change({Code::kTimeout, "not all nodes of its groups answered in time; nothing was changed"});
  change_.reset();
}

// `about`: "dp\nbackends=tcp,rdma\nnics=eth1", the class and its new settings by lines.
void Control::answer_class(uint64_t session, const std::string& about) {
  const auto answer = [this, session](Code code, const std::string& text) {
    sessions_->send(session, ipc::encode_text(ipc::Kind::kAnswerIs, code, text));
  };
  // Exists, as this runs while the session's message is handled.
  const ClientSession* client = sessions_->find(session);
  if (client->credentials.uid != 0 && !is_this_user(client->credentials.uid)) {
    return answer(Code::kInvalidUsage, "only root and the daemon's own user may change classes");
  }
  const size_t cut = std::min(about.find('\n'), about.size());
  const std::string name = about.substr(0, cut);
  std::string settings;
  ConfigPairs pairs;
  for (const auto& [key, value] : parse_settings(about.substr(std::min(cut + 1, about.size())))) {
    pairs.emplace_back("class." + name + "." + key, value);
    settings += (settings.empty() ? "" : "\n") + pairs.back().first + "=" + value;
  }
  Config config = config_;
  if (const Status set = override_config(config, pairs, "hdtctl class set"); !set.is_ok() || pairs.empty()) {
    return answer(Code::kInvalidArgument, pairs.empty() ? "expected KEY=VALUE" : set.message());
  }
  // A restarted node must be able to send all that was changed in one Successor, whose settings have a
  // limit.
  if (LiveClasses after = live_; after.changed(settings), after.of(name).settings.size() > kMaxSettings) {
    return answer(Code::kInvalidArgument, "the settings of class " + name + " would be longer than " +
                                              std::to_string(kMaxSettings) + " characters");
  }
  change_class(config, settings, [this, session, name, answer](const Status& outcome) {
    if (!outcome.is_ok()) {
      HDT_LOG_WARN("class {} was not changed: {} {}", name, outcome.message(), LogTag{.node = node_.name});
      return answer(outcome.code(), "class " + name + " was not changed: " + outcome.message());
    }
    const ClassConfig now = config_.class_named(name);
    HDT_LOG_INFO("class {} was changed {}", name, LogTag{.node = node_.name});
    send_json(session, ipc::encode_text(ipc::Kind::kAnswerIs, Code::kSuccess, ""),
              {{"class", name},
               {"backends", now.backends},
               {"nics", now.nics},
               {"algorithm", now.algorithm},
               {"priority", now.priority},
               {"weight", now.weight}});
  });
}

// Another node of a group knows newer settings of its class. This node changes to them by itself: the
// other node has them already. The Successors that are being sent are renewed when the new settings hold
// here.
Status Control::take_live_class(const std::string& group_class, const LiveClass& newer) {
  if (!devices_differ_.empty()) return {Code::kSystem, devices_differ_};
  // The other node sends its message again.
  if (change_) return Status::ok();
  auto config = with_live_class(config_, configured_, group_class, newer);
  if (!config.is_ok()) return config.status();
  HDT_RETURN_IF_ERROR(begin_change(random_number(), config.take(), "", false));
  open_for_change([this, group_class, newer](const Status& opened) {
    if (opened.is_ok()) {
      adopt_change();
      live_.take(group_class, newer);
      rediscovery_->refresh([this](Successor& word) {
        word.live = live_.of(word.group_class);
        word.node = self_for(word.group_class);
      });
      HDT_LOG_INFO("class {} is as on the other nodes of its groups {}", group_class,
                   LogTag{.node = node_.name});
    } else {
      HDT_LOG_ERROR("class {} cannot be as on the other nodes of its groups: {} {}", group_class,
                    opened.message(), LogTag{.node = node_.name});
    }
    change_.reset();
  });
  return Status::ok();
}

Config Control::with_classes_of(const Config& other) const {
  Config changed = config_;
  changed.classes = other.classes;
  take_origins(changed, other, "class.");
  return changed;
}

// The file has changed. Other nodes have files of their own: each node that was asked to read its file at
// about the same time goes by its new one; the others keep their configuration. Until all nodes that must
// change have been asked, there may be no path between two of them (kNoBackend), and nodes that ask each
// other are refused (kInvalidUsage). So it is tried again for a while, after a random time, so that two
// nodes do not meet again and again.
void Control::reload() {
  change_class(with_classes_of(*reload_), "", [this, of = reloads_](const Status& outcome) {
    if (of != reloads_)
      // The file was read again meanwhile. That found this node busy and will try again by itself.
      return;
    if (outcome.is_ok()) {
      reload_.reset();
      HDT_LOG_INFO("classes are as configured now {}", LogTag{.node = node_.name});
    } else if ((outcome.code() == Code::kInvalidUsage || outcome.code() == Code::kNoBackend) &&
               reload_tries_-- > 0) {
      std::random_device device;
      reload_at_ = Deadline::after_ms(50 + static_cast<int64_t>(device() % 400));
    } else {
      reload_.reset();
      HDT_LOG_ERROR("classes were not changed: {} {}", outcome.message(), LogTag{.node = node_.name});
    }
  });
}

// A reload under way is replaced: its outcome is ignored, as `reloads_` has changed.
void Control::reconfigure(Config config) {
  mailbox_.post([this, config = std::move(config)] {
    reload_ = config;
    ++reloads_;
    reload_tries_ = kReloadTries;
    reload();
  });
}

}  // namespace hdt::daemon
