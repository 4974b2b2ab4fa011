// class_changes.cc: see class_changes.h.
#include "daemon/control/class_changes.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/log.h"
#include "base/users.h"
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

// By value: engines call it on their threads while the configuration changes.
PolicyOfClass policies_of(const Config& config) {
  return [config](const std::string& group_class) {
    const ClassConfig policy = config.class_named(group_class);
    return transport::SharePolicy{policy.priority == "latency", static_cast<uint32_t>(policy.weight)};
  };
}

// Computes what this node would be after the change, and whether it can be that. keep_order() puts the
// NICs that are opened already first and in their order, since engines know devices by their index.
Status ClassChanges::begin(uint64_t number, Config config, const std::string& settings, bool from_file) {
  // One change at a time on a node: two at once could each be possible and both together not.
  if (change_) return {Code::kInvalidUsage, kBusy};
  auto plan = make_plan(config, daemon_.plan.folders(), daemon_.own_host_only);
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
template <typename Then>
void ClassChanges::open_devices(Then then) {
  const auto& wanted = change_->plan.nics();
  const std::vector<BackendNic> more(wanted.begin() + static_cast<std::ptrdiff_t>(opened_.size()),
                                     wanted.end());
  auto opened = std::make_shared<std::vector<Status>>(daemon_.engines.size(), Status::ok());
  auto ends = std::make_shared<std::vector<std::vector<RailEnd>>>(daemon_.engines.size());
  daemon_.engines.on_every(
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
          daemon_.node.rails = *ends;
        } else {
          devices_differ_ = failed->message();
        }
        // The change may have timed out, or have been replaced, meanwhile.
        if (!change_ || change_->number != number) return;
        change_->open = failed == opened->end();
        then(failed == opened->end() ? Status::ok() : *failed);
      });
}

// With `all` the ends of every class; otherwise only of those that the change touches, since the groups of
// the others need not be asked.
EndsOfClass ClassChanges::ends_after(bool all) const {
  return [before = daemon_.config, after = change_->config, plan = change_->plan, rails = daemon_.node.rails,
          all](const std::string& name) -> std::optional<std::vector<std::vector<RailEnd>>> {
    // Copies of what is needed, since engines call the function on their threads.
    if (!all && before.class_named(name) == after.class_named(name)) return std::nullopt;
    return plan.ends_for(name, rails);
  };
}

// Two phases over all nodes: nothing is changed anywhere before every node of every group of the class has
// answered that it can. `done` is called exactly once, with the reason if nothing was changed.
void ClassChanges::change(Config config, const std::string& settings, Done done) {
  // 1. This node must be able to change.
  if (!devices_differ_.empty()) return done({Code::kSystem, devices_differ_});
  // Drawn at random, because two nodes may begin changes at the same moment, and their numbers must
  // differ.
  const uint64_t number = random_number();
  const Status begun = begin(number, std::move(config), settings, settings.empty());
  if (!begun.is_ok()) return done(begun);
  change_->done = std::move(done);
  change_->engines_left = daemon_.engines.size();
  // Shorter than the time after which another node forgets the change, so this node's decision comes
  // first.
  change_->until = Deadline::after_ms(kChangeMs);
  // 2. Engines open devices. 3. Each engine asks the other nodes of its groups; on_proposed() collects
  //    the answers.
  open_devices([this](const Status& opened) {
    if (!opened.is_ok()) return end(opened);
    daemon_.engines.post_all([number = change_->number, text = change_->settings, ends = ends_after(false)](
                                 Engine& engine) { engine.mover().propose(number, text, ends); });
  });
}

// One call by each engine of this node, when all nodes of all its groups have answered, or at the first no.
void ClassChanges::on_proposed(uint64_t number, const Status& answer) {
  // The answer may belong to a change that has timed out. Without `done` the change is another node's.
  if (!change_ || change_->number != number || !change_->done) return;
  if (!answer.is_ok()) return end(answer);
  if (--change_->engines_left == 0) end(Status::ok());
}

// The end of a change that this node asked for: all nodes do it, or none. `done` runs last, as it may
// begin another change.
void ClassChanges::end(const Status& outcome) {
  const auto done = std::move(change_->done);
  daemon_.engines.post_all([number = change_->number, commit = outcome.is_ok()](Engine& engine) {
    engine.mover().finish(number, commit);
  });
  if (outcome.is_ok()) adopt();
  change_.reset();
  done(outcome);
}

// The one place where daemon_.config and daemon_.plan change after start(). Engines get the new priorities
// and weights; new groups see the new plan.
void ClassChanges::adopt() {
  daemon_.config = change_->config;
  if (change_->from_file) {
    configured_ = daemon_.config;
    daemon_.live.as_configured();
  } else {
    daemon_.live.changed(change_->settings);
  }
  daemon_.plan = change_->plan;
  daemon_.engines.post_all(
      [policies = policies_of(daemon_.config)](Engine& engine) { engine.set_policies(policies); });
}

// Another node asks. Each group that it shares with this node asks by its own engine, so this is called
// once per group; the first call begins the change, the others join it.
void ClassChanges::on_prepare(const NodeChange::Asker& asker, const ClassPrepare& prepare) {
  const auto refuse = [&](const Status& why) {
    daemon_.engines.post(asker.engine, [asker, number = prepare.change, why](Engine& engine) {
      engine.mover().prepare(asker.group, number, why);
    });
  };
  // The node that asked gets the reason, with this node's name, and ends the change everywhere.
  if (!devices_differ_.empty()) return refuse({Code::kSystem, devices_differ_});
  if (change_ && change_->number == prepare.change) {
    change_->askers.push_back(asker);
    if (change_->open) answer_askers(Status::ok());
    return;
  }
  // Without settings every node goes by its own file: the one that it was asked to read, if it was, else
  // it stays as it is.
  const bool from_file = prepare.settings.empty() && reload_;
  Config config = from_file ? with_classes_of(*reload_) : daemon_.config;
  const ConfigPairs settings = parse_settings(prepare.settings);
  // Another node may change classes only, no other keys.
  const bool of_classes = std::all_of(settings.begin(), settings.end(),
                                      [](const auto& s) { return s.first.starts_with("class."); });
  const Status set = of_classes ? override_config(config, settings, "hdtctl class set on another node")
                                : Status(Code::kInvalidArgument, "a change of classes names other keys");
  if (!set.is_ok()) return refuse(set);
  const Status begun = begin(prepare.change, std::move(config), prepare.settings, from_file);
  if (!begun.is_ok()) return refuse(begun);
  change_->askers.push_back(asker);
  open_devices([this](const Status& opened) {
    answer_askers(opened);
    if (!opened.is_ok()) change_.reset();
  });
}

// Each asker once: they are taken out of the change. A group that asks later is answered at once
// (on_prepare()).
void ClassChanges::answer_askers(const Status& opened) {
  const EndsOfClass ends_of = ends_after(true);
  for (const NodeChange::Asker& asker : std::exchange(change_->askers, {})) {
    // `all` is true, so each class has ends.
    Result<std::vector<RailEnd>> ends = opened;
    if (opened.is_ok()) ends = (*ends_of(asker.group_class))[asker.engine];
    daemon_.engines.post(asker.engine, [group = asker.group, number = change_->number, ends](Engine& engine) {
      engine.mover().prepare(group, number, ends);
    });
  }
}

// After a commit this node and the one that asked have the same settings of the class; groups are moved by
// their engines, which have the commit from the same message.
void ClassChanges::on_commit(uint64_t number, bool commit) {
  // Each group's engine reports the commit; the first report ends the change.
  if (!change_ || change_->number != number || change_->done) return;
  if (commit) adopt();
  change_.reset();
}

// First a reload that is due, then the deadline of the change under way.
void ClassChanges::on_time() {
  if (reload_at_.expired()) {
    reload_at_ = Deadline::never();
    if (reload_) reload();
  }
  if (!change_ || !change_->until.expired()) return;
  // This node asked: not all have answered in time. Otherwise the node that asked is suspended, or has
  // failed; forgetting the change frees this node for others.
  if (change_->done)
    return end({Code::kTimeout, "not all nodes of its groups answered in time; nothing was changed"});
  change_.reset();
}

// `about`: "dp\nbackends=tcp,rdma\nnics=eth1", the class and its new settings by lines.
void ClassChanges::answer_set(uint64_t session, const std::string& about) {
  const auto answer = [this, session](Code code, const std::string& text) {
    daemon_.sessions->send(session, ipc::encode_text(ipc::Kind::kAnswerIs, code, text));
  };
  // Exists, as this runs while the session's message is handled.
  const ClientSession* client = daemon_.sessions->find(session);
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
  Config config = daemon_.config;
  if (const Status set = override_config(config, pairs, "hdtctl class set"); !set.is_ok() || pairs.empty()) {
    return answer(Code::kInvalidArgument, pairs.empty() ? "expected KEY=VALUE" : set.message());
  }
  // A restarted node must be able to send all that was changed in one Successor, whose settings have a
  // limit.
  if (LiveClasses after = daemon_.live;
      after.changed(settings), after.of(name).settings.size() > kMaxSettings) {
    return answer(Code::kInvalidArgument, "the settings of class " + name + " would be longer than " +
                                              std::to_string(kMaxSettings) + " characters");
  }
  change(config, settings, [this, session, name, answer](const Status& outcome) {
    if (!outcome.is_ok()) {
      HDT_LOG_WARN("class {} was not changed: {} {}", name, outcome.message(),
                   LogTag{.node = daemon_.node.name});
      return answer(outcome.code(), "class " + name + " was not changed: " + outcome.message());
    }
    const ClassConfig now = daemon_.config.class_named(name);
    HDT_LOG_INFO("class {} was changed {}", name, LogTag{.node = daemon_.node.name});
    send_answer(daemon_, session,
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
Status ClassChanges::take_live(const std::string& group_class, const LiveClass& newer) {
  if (!devices_differ_.empty()) return {Code::kSystem, devices_differ_};
  // The other node sends its message again.
  if (change_) return Status::ok();
  auto config = with_live_class(daemon_.config, configured_, group_class, newer);
  if (!config.is_ok()) return config.status();
  HDT_RETURN_IF_ERROR(begin(random_number(), config.take(), "", false));
  open_devices([this, group_class, newer](const Status& opened) {
    if (opened.is_ok()) {
      adopt();
      daemon_.live.take(group_class, newer);
      daemon_.rediscovery->refresh([this](Successor& word) {
        word.live = daemon_.live.of(word.group_class);
        word.node = daemon_.self_for(word.group_class);
      });
      HDT_LOG_INFO("class {} is as on the other nodes of its groups {}", group_class,
                   LogTag{.node = daemon_.node.name});
    } else {
      HDT_LOG_ERROR("class {} cannot be as on the other nodes of its groups: {} {}", group_class,
                    opened.message(), LogTag{.node = daemon_.node.name});
    }
    change_.reset();
  });
  return Status::ok();
}

// A reload changes classes only; the other keys of the file count at the next start.
Config ClassChanges::with_classes_of(const Config& other) const {
  Config changed = daemon_.config;
  changed.classes = other.classes;
  take_origins(changed, other, std::nullopt);
  return changed;
}

// The file has changed. Other nodes have files of their own: each node that was asked to read its file at
// about the same time goes by its new one; the others keep their configuration. Until all nodes that must
// change have been asked, there may be no path between two of them (kNoBackend), and nodes that ask each
// other are refused (kInvalidUsage). So it is tried again for a while, after a random time, so that two
// nodes do not meet again and again.
void ClassChanges::reload() {
  change(with_classes_of(*reload_), "", [this, of = reloads_](const Status& outcome) {
    if (of != reloads_)
      // The file was read again meanwhile. That found this node busy and will try again by itself.
      return;
    if (outcome.is_ok()) {
      reload_.reset();
      HDT_LOG_INFO("classes are as configured now {}", LogTag{.node = daemon_.node.name});
    } else if ((outcome.code() == Code::kInvalidUsage || outcome.code() == Code::kNoBackend) &&
               reload_tries_-- > 0) {
      std::random_device device;
      reload_at_ = Deadline::after_ms(50 + static_cast<int64_t>(device() % 400));
    } else {
      reload_.reset();
      HDT_LOG_ERROR("classes were not changed: {} {}", outcome.message(), LogTag{.node = daemon_.node.name});
    }
  });
}

// A reload under way is replaced: its outcome is ignored, as `reloads_` has changed.
void ClassChanges::read_again(Config config) {
  reload_ = std::move(config);
  ++reloads_;
  reload_tries_ = kReloadTries;
  reload();
}

}  // namespace hdt::daemon
