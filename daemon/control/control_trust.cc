// control_trust.cc: what Control does about the identity of daemons (trust.h): its own keys at start, and
// warnings about who can be a peer.
#include <fmt/format.h>
#include <fmt/ranges.h>
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

// 1. The key: a job's secret, else the configured file. 2. The node key and known nodes. 3. The nodes that
//    may be peers at all. 4. TLS for payload.
Status Control::open_trust() {
  auto key =
      job_secret_.empty() ? load_cluster_key(daemon_.config.security.cluster_key_file) : job_key(job_secret_);
  if (!key.is_ok()) return key.status();
  // An embedded daemon belongs to its job. Other nodes need not recognize it later, so its node key is
  // not kept.
  const bool embedded = daemon_.host_pid != 0;
  auto trust = Trust::open({key.take(), embedded ? "" : daemon_.config.node.state_folder,
                            embedded ? "" : daemon_.config.security.nodes_file});
  if (!trust.is_ok()) return trust.status();
  daemon_.trust = trust.take();
  // Handshakes happen on all threads; the file is written on this one.
  daemon_.trust->on_new([this] { daemon_.mailbox.post([this] { keep_nodes(); }); });
  daemon_.node.id = daemon_.trust->node();
  // An embedded daemon without a job secret is not confined: its job may span hosts, and its user cannot
  // be asked for a key.
  daemon_.own_host_only =
      daemon_.trust->cluster_key().empty() && !daemon_.config.security.insecure && !embedded;
  return open_security();
}

// The protection of payload over tcp. Control connections are encrypted wherever there is a key
// (ControlNetwork::start()).
Status Control::open_security() {
  const auto protection = transport::secure::parse_protection(daemon_.config.security.transport);
  if (!protection) return {Code::kInternal, "no such protection: " + daemon_.config.security.transport};
  if (*protection == transport::secure::Protection::kNone) return Status::ok();
  if (daemon_.trust->cluster_key().empty()) {
    return {Code::kConfig, "security.transport = \"" + daemon_.config.security.transport +
                               "\" needs a key that all nodes have: make one with `hdtctl key new --output "
                               "/etc/hdt/cluster.key` and name it in security.cluster_key_file"};
  }
  auto security = transport::secure::make_tls_security(daemon_.trust->cluster_key(), *protection,
                                                       daemon_.config.node.name);
  if (!security.is_ok()) return security.status();
  daemon_.security = security.take();
  return Status::ok();
}

// Said at every start: an administrator learns from the log what the daemon does not protect.
void Control::say_who_can_be_a_peer() const {
  // The backends whose payload TLS does not protect.
  std::set<std::string> bare;
  for (const BackendNic& nic : daemon_.plan.nics()) {
    if (nic.backend != kTcp) bare.insert(nic.backend);
  }
  if (daemon_.security != nullptr && !bare.empty()) {
    HDT_LOG_WARN(
        "security.transport = \"{}\" protects tcp; what groups send over {} only its network protects",
        daemon_.config.security.transport, fmt::join(bare, ", "));
  }
  if (!daemon_.trust->cluster_key().empty()) return;
  // With security.insecure anybody who reaches this address can be a peer; that is worth a warning unless
  // it is loopback.
  const std::string& address = daemon_.plan.nics().front().info.address;
  if (daemon_.own_host_only) {
    // If loopback addresses are configured, no other hosts are expected, and there is nothing to warn
    // about.
    const auto& named = daemon_.config.nics.addresses;
    HDT_LOG_AT(named.empty() || !is_loopback(named.front()) ? LogLevel::kWarn : LogLevel::kInfo,
               "no security.cluster_key_file: only daemons of this host are peers; {}", how_to_have_peers());
  } else if (daemon_.host_pid == 0 && !is_loopback(address)) {
    HDT_LOG_WARN("security.insecure: any machine that reaches {} can join groups of this node", address);
  }
}

// If it fails, the nodes stay known until the daemon ends; the next new node leads to another attempt.
void Control::keep_nodes() {
  const Status kept = daemon_.trust->keep();
  if (!kept.is_ok()) HDT_LOG_WARN("the keys of other nodes are not kept: {}", kept.message());
}

}  // namespace hdt::daemon
