// group_classes.cc: derives the settings of the classes from which nodes talk, and checks given settings
// against the same.
#include "training/plan/describe/group_classes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "training/plan/describe/refuse.h"
#include "training/plan/describe/replica_kinds.h"

namespace hdt::plan {
namespace {

using Names = std::vector<std::string>;
using Uses = std::map<std::string, std::set<ClassUse>>;

// The backend of groups that stay inside a node. It stands alone in a list of backends.
constexpr char kInsideNode[] = "shm";
// In a list of NICs: all of them.
constexpr char kAll[] = "*";

bool contains(const Names& names, const std::string& name) { return std::ranges::count(names, name) > 0; }

// The name must be one of the cluster's; check_cluster() has seen to that.
const NicKind& nic_named(const Cluster& cluster, const std::string& name) {
  return *std::ranges::find(cluster.nics, name, &NicKind::name);
}

// Collects the uses of one class. Nodes are known by their address in `cluster`, which must outlive this
// object.
class Talks {
 public:
  Talks(const Cluster& cluster, std::set<ClassUse>& uses) : cluster_(cluster), uses_(uses) {
    for (const Node& node : cluster.nodes) nodes_.emplace(node.name, &node);
  }

  const Node* node(const Stage& stage) const { return nodes_.at(stage.node); }

  // The two nodes exchange messages, in either direction. Nothing to do for two stages on one node.
  Status add(const Node* from, const Node* to) {
    if (from == to) return Status::ok();
    const int nic = cluster_.nic_between(*from, *to);
    if (nic < 0)
      return refuse("node", fmt::format("'{}' and '{}' have no kind of NIC in common", from->name, to->name));
    std::string first = from->kind();
    std::string second = to->kind();
    if (second < first) std::swap(first, second);
    uses_.insert({std::move(first), std::move(second), cluster_.nics[nic].name});
    return Status::ok();
  }

  // Any two of the members may exchange messages: the algorithm of a reduction is chosen when it runs.
  // Uses depend on the kinds of nodes alone, so two members of each kind stand for all: one for the talk
  // with other kinds, and the second for the talk within the kind.
  Status add_all(const std::set<const Node*>& members) {
    std::map<std::string, std::vector<const Node*>> kinds;  // two of each stand for all
    for (const Node* node : members) {
      std::vector<const Node*>& some = kinds[node->kind()];
      if (some.size() < 2) some.push_back(node);
    }
    for (const auto& [kind, some] : kinds) {
      HDT_RETURN_IF_ERROR(add(some.front(), some.back()));
      for (const auto& [other, others] : kinds) HDT_RETURN_IF_ERROR(add(some.front(), others.front()));
    }
    return Status::ok();
  }

 private:
  const Cluster& cluster_;
  std::set<ClassUse>& uses_;
  std::map<std::string, const Node*> nodes_;
};

// Each NIC kind of the class must be on some node. Otherwise its name is probably mistyped.
Status check_nics(const std::string& field, const ClassConfig& settings, const Cluster& cluster) {
  for (const std::string& nic : settings.nics) {
    if (nic == kAll) continue;
    const bool known =
        std::ranges::any_of(cluster.nodes, [&](const Node& node) { return contains(node.nics, nic); });
    if (!known)
      return refuse(field, fmt::format("'{}' given, but no node of the cluster has that kind of NIC", nic));
  }
  return Status::ok();
}

// Each backend must belong to a NIC kind of the class, and be given once.
Status check_backends(const std::string& field, const ClassConfig& settings, const Cluster& cluster) {
  for (const std::string& backend : settings.backends) {
    // A backend that no NIC of the class has would never be used.
    const bool known = std::ranges::any_of(cluster.nics, [&](const NicKind& nic) {
      return (contains(settings.nics, kAll) || contains(settings.nics, nic.name)) &&
             contains(nic.backends, backend);
    });
    if (!known)
      return refuse(field, fmt::format("'{}' given, but no kind of NIC of the class ({}) has it", backend,
                                       fmt::join(settings.nics, ", ")));
    if (std::ranges::count(settings.backends, backend) > 1)
      return refuse(field, fmt::format("'{}' given twice", backend));
  }
  return Status::ok();
}

// Two kinds of nodes talk over use.nic: the class must have that NIC kind, and one of its backends.
Status check_use(const std::string& field, const ClassConfig& settings, const ClassUse& use,
                 const Cluster& cluster) {
  if (!contains(settings.nics, kAll) && !contains(settings.nics, use.nic))
    return refuse(field + ".nics", fmt::format("'{}' is missing, over which '{}' and '{}' are taken to talk",
                                               use.nic, use.from, use.to));
  const Names& backends = nic_named(cluster, use.nic).backends;
  // One backend that both have is enough for a link.
  const bool any =
      std::ranges::any_of(backends, [&](const auto& name) { return contains(settings.backends, name); });
  if (any) return Status::ok();
  return refuse(field + ".backends", fmt::format("none of '{}' ({}), over which '{}' and '{}' talk", use.nic,
                                                 fmt::join(backends, ", "), use.from, use.to));
}

// Whether some kind of node sends messages of both classes through the same kind of NIC.
bool share_nics(const std::set<ClassUse>& one, const std::set<ClassUse>& other) {
  return std::ranges::any_of(one, [&](const ClassUse& a) {
    return std::ranges::any_of(other, [&](const ClassUse& b) {
      return a.nic == b.nic && (a.from == b.from || a.from == b.to || a.to == b.from || a.to == b.to);
    });
  });
}

}  // namespace

Result<Uses> class_uses(const Plan& plan, const Cluster& cluster) {
  Uses uses;
  if (plan.replicas.size() > 1) {
    // Gradients: all owners of the same units. Many owner sets have the same nodes, so each set of nodes
    // is looked at once.
    Talks dp(cluster, uses["dp"]);
    // The sets of nodes whose pairs have been added.
    std::set<std::set<const Node*>> done;
    // A tied matrix is not known here; its owners are the first and the last stages.
    for (const Ring& ring : rings_of(plan, false)) {
      std::set<const Node*> members;
      for (const auto& [replica, stage] : ring.members)
        members.insert(dp.node(plan.replicas[replica].stages[stage]));
      if (done.insert(members).second) HDT_RETURN_IF_ERROR(dp.add_all(members));
    }
  }
  // Activations and gradients of activations: neighbouring stages of a replica, and where stages have several
  // chunks also the last and the first one.
  for (const Replica& replica : plan.replicas) {
    if (replica.stages.size() < 2) continue;
    Talks pp(cluster, uses["pp"]);
    for (size_t s = 1; s < replica.stages.size(); ++s)
      HDT_RETURN_IF_ERROR(pp.add(pp.node(replica.stages[s - 1]), pp.node(replica.stages[s])));
    if (replica.chunks() > 1)
      HDT_RETURN_IF_ERROR(pp.add(pp.node(replica.stages.back()), pp.node(replica.stages.front())));
  }
  // A stage is on one node, so "tp" exists if a stage has several devices, but it uses no NIC.
  for (const Replica& replica : plan.replicas) {
    for (const Stage& stage : replica.stages) {
      if (stage.tensor_parallel > 1) uses["tp"];
    }
  }
  return uses;
}

Result<std::map<std::string, ClassConfig>> class_settings(const Plan& plan, const Cluster& cluster) {
  std::map<std::string, ClassConfig> classes;
  if (cluster.nics.empty()) return classes;
  const Result<Uses> uses = class_uses(plan, cluster);
  if (!uses.is_ok()) return uses.status();
  for (const auto& [name, used] : uses.value()) {
    ClassConfig& settings = classes[name];
    // No member of any group talks to another node.
    if (used.empty()) {
      settings.backends = {kInsideNode};
      continue;
    }
    // The default is "*", all NICs. The class gets only those it needs, so that classes do not disturb
    // each other.
    settings.nics.clear();
    std::vector<Names> preferences;
    for (const NicKind& nic : cluster.nics) {
      if (std::ranges::find(used, nic.name, &ClassUse::nic) == used.end()) continue;
      settings.nics.push_back(nic.name);
      preferences.push_back(nic.backends);
    }
    settings.backends = *merged_preferences(std::move(preferences));  // check_cluster: there is one
  }
  if (classes.contains("pp") && classes.contains("dp") &&
      share_nics(uses.value().at("pp"), uses.value().at("dp")))
    classes["pp"].priority = "latency";
  return classes;
}

Status check_classes(const Plan& plan, const Cluster& cluster) {
  // A plan without classes uses whatever hdtcommd is configured with.
  if (plan.classes.empty()) return Status::ok();
  if (cluster.nics.empty()) return refuse("class", "given, but the cluster has no [[nic]] tables");
  const Result<Uses> uses = class_uses(plan, cluster);
  if (!uses.is_ok()) return uses.status();
  for (const auto& [name, settings] : plan.classes) {
    const std::string field = "class." + name;
    const auto used = uses.value().find(name);
    // The message lists the classes that the plan has groups of.
    if (used == uses.value().end()) {
      Names known;
      for (const auto& [other, groups] : uses.value()) known.push_back(other);
      return refuse(field,
                    fmt::format("the plan has no groups of this class, expected {}", fmt::join(known, ", ")));
    }
    HDT_RETURN_IF_ERROR(check_nics(field + ".nics", settings, cluster));
    // "shm" alone is right if and only if the class stays inside nodes.
    const bool inside = settings.backends == Names{kInsideNode};
    if (inside && used->second.empty()) continue;
    if (inside)
      return refuse(field + ".backends",
                    fmt::format("'{}' given, but '{}' and '{}' talk between nodes", kInsideNode,
                                used->second.begin()->from, used->second.begin()->to));
    HDT_RETURN_IF_ERROR(check_backends(field + ".backends", settings, cluster));
    for (const ClassUse& use : used->second) HDT_RETURN_IF_ERROR(check_use(field, settings, use, cluster));
  }
  // If some classes are given, all must be: the others would get the daemon's defaults, which share NICs
  // with them.
  for (const auto& [name, used] : uses.value()) {
    if (!plan.classes.contains(name))
      return refuse("class." + name, "is missing, as other classes are given");
  }
  return Status::ok();
}

}  // namespace hdt::plan
