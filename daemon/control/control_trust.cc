// control_trust.cc: what Control does about the identity of daemons (trust.h): its own keys at start,
// warnings about who can be a peer, and whether a daemon may join ranks in a node's name.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "base/address.h"
#include "base/hmac.h"
#include "base/log.h"
#include "base/signing.h"
#include "daemon/control/control.h"
#include "daemon/links/own_host.h"
#include "transports/net/subnet.h"
#include "transports/secure/tls.h"

namespace hdt::daemon {

namespace {

// The cluster key of a job's embedded daemons, made from the job's secret. The text in front separates it
// from other uses of SHA-256.
Result<std::string> job_key(const std::string& secret) {
  const std::string text = "HDT job " + secret;
  const auto digest = sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  if (!digest.is_ok()) return digest.status();
  return hex_text(digest.value());
}

}  // namespace

// 1. The key: a job's secret, else the configured file. 2. The node key and known nodes. 3. Who may be a
//    peer at all. 4. TLS for payload.
Status Control::open_trust() {
  auto key = job_secret_.empty() ? load_cluster_key(config_.security.cluster_key_file) : job_key(job_secret_);
  if (!key.is_ok()) return key.status();
  // An embedded daemon belongs to its job. Other nodes need not recognize it later, so its node key is
  // not kept.
  const bool embedded = host_pid_ != 0;
  auto trust = Trust::open(
      {key.take(), embedded ? "" : config_.node.state_folder, embedded ? "" : config_.security.nodes_file});
  if (!trust.is_ok()) return trust.status();
  trust_ = trust.take();
  // Handshakes happen on all threads; the file is written on this one.
  trust_->on_new([this] { mailbox_.post([this] { keep_nodes(); }); });
  node_.id = trust_->node();
  // An embedded daemon without a job secret is not confined: its job may span hosts, and its user cannot
  // be asked for a key.
  own_host_only_ = trust_->cluster_key().empty() && !config_.security.insecure && !embedded;
  return open_security();
}

// The protection of payload over tcp. Control connections are encrypted wherever there is a key
// (ControlNetwork::start()).
Status Control::open_security() {
  const auto protection = transport::secure::parse_protection(config_.security.transport);
  if (!protection) return {Code::kInternal, "no such protection: " + config_.security.transport};
  if (*protection == transport::secure::Protection::kNone) return Status::ok();
  if (trust_->cluster_key().empty()) {
    return {Code::kConfig, "security.transport = \"" + config_.security.transport +
                               "\" needs a key that all nodes have: make one with `hdtctl key new --output "
                               "/etc/hdt/cluster.key` and name it in security.cluster_key_file"};
  }
  auto security = transport::secure::make_tls_security(trust_->cluster_key(), *protection, config_.node.name);
  if (!security.is_ok()) return security.status();
  security_ = security.take();
  return Status::ok();
}

void Control::say_who_can_be_a_peer() const {
  // The backends whose payload TLS does not protect.
  std::set<std::string> bare;
  for (const BackendNic& nic : plan_.nics()) {
    if (nic.backend != kTcp) bare.insert(nic.backend);
  }
  if (security_ != nullptr && !bare.empty()) {
    HDT_LOG_WARN(
        "security.transport = \"{}\" protects tcp; what groups send over {} only its network protects",
        config_.security.transport, fmt::join(bare, ", "));
  }
  if (!trust_->cluster_key().empty()) return;
  // With security.insecure anybody who reaches this address can be a peer; that is worth a warning unless
  // it is loopback.
  const std::string& address = plan_.nics().front().info.address;
  if (own_host_only_) {
    // If loopback addresses are configured, no other hosts are expected, and there is nothing to warn
    // about.
    const auto& named = config_.nics.addresses;
    HDT_LOG_AT(named.empty() || !is_loopback(named.front()) ? LogLevel::kWarn : LogLevel::kInfo,
               "no security.cluster_key_file: only daemons of this host are peers; {}", how_to_have_peers());
  } else if (host_pid_ == 0 && !is_loopback(address)) {
    HDT_LOG_WARN("security.insecure: any machine that reaches {} can join groups of this node", address);
  }
}

void Control::say_who_can_join(const std::vector<NodeInfo>& nodes) {
  if (host_pid_ == 0 || said_who_can_join_ || !trust_->cluster_key().empty()) return;
  // A node is on another host if the first address of its daemon is none of this host's.
  const auto own = transport::OwnAddresses::now();
  const auto is_outside = [&own](const NodeInfo& node) {
    return own.is_ok() && !own.value().has(host_of(node.address.substr(0, node.address.find(','))));
  };
  if (std::none_of(nodes.begin(), nodes.end(), is_outside)) return;
  said_who_can_join_ = true;
  HDT_LOG_WARN(
      "this job spans hosts and has no secret: whoever reaches its processes' ports can pose as one of them; "
      "give all its ranks the same HDT_JOB_SECRET (any random text), or run hdtcommd with a cluster key");
}

// If it fails, the nodes stay known until the daemon ends; the next new node leads to another attempt.
void Control::keep_nodes() {
  const Status kept = trust_->keep();
  if (!kept.is_ok()) HDT_LOG_WARN("the keys of other nodes are not kept: {}", kept.message());
}

// A Join must be made by the daemon of its node, must not mix users where an embedded daemon serves one,
// and must not have the key of a living group of this node. The last is asked here because Rendezvous
// forgets a group when it is made.
void Control::on_join_message(ChannelId channel, const Join& join) {
  std::optional<Status> why;
  if (!network_->is_from(channel, join.node)) {
    // A daemon speaks for its own node only.
    why = Status(Code::kInvalidUsage,
                 "a daemon joins in the name of node " + join.node.name + ", which it is not");
  } else if (join.meeting == ipc::Meeting::kAddress && host_pid_ != 0 && join.uid != ::geteuid()) {
    why = Status(
        Code::kInvalidUsage,
        fmt::format("rank {} (pid {} of user {} on node {}) meets a daemon that serves jobs of user {} only: "
                    "ranks of different users need the same HDT_JOB_SECRET",
                    join.rank, join.pid, join.uid, join.node.name, ::geteuid()));
  } else {
    why = maker_->taken(join.key, join.meeting,
                        fmt::format("pid {} of user {} on node {}", join.pid, join.uid, join.node.name));
  }
  // The rank's daemon gets an Outcome in either case, now or later.
  if (!why) return reply(rendezvous_.on_join(channel, join));
  reply({{channel, Outcome{join.key, why->code(), -1, why->message()}}});
}

}  // namespace hdt::daemon
