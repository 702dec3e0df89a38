#include "rdma/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rkv/rdma/address.h"

namespace rkv::rdma {
namespace {

// Whether `auto` may use something else than verbs.
bool may_fall_back(const TransportOptions& options) {
  return options.kind == TransportKind::kAuto && options.verbs.device.empty() &&
         options.verbs.gid_index < 0;
}

// Whether the name or address in HOST:PORT is one of this host.
bool is_on_this_host(const std::string& address, const Deadline& deadline) {
  const auto where = parse_host_port(address);
  if (!where) return false;
  const auto all = resolve(*where, deadline);
  return all && std::ranges::any_of(*all, is_this_host);
}

std::string as_asked(const Transport& transport) {
  return fmt::format("{}, as asked", transport.describe());
}

Result<ClientTransport> opened_as_asked(Result<std::unique_ptr<Transport>> opened) {
  if (!opened) return std::unexpected(opened.error());
  std::string reason = as_asked(**opened);
  return ClientTransport{.transport = std::move(*opened), .reason = std::move(reason)};
}

// Servers of this host are reached over shared memory; also one that is not there yet, unless
// something listens on its port over TCP alone.
bool is_for_shm(const TransportOptions& options) {
  const SteadyClock clock;
  const Deadline deadline = Deadline::after_ms(clock, options.verbs.find_ms);
  std::vector<std::string> servers = options.servers;
  if (servers.empty()) servers.push_back(options.verbs.address);
  const auto is_here = [&](const auto& one) { return is_on_this_host(one, deadline); };
  const auto has_shm = [&](const auto& one) {
    return listens_over_shm(options.shm, one, deadline);
  };
  const auto has_tcp = [&](const auto& one) { return listens_over_tcp(one, deadline); };
  return std::ranges::all_of(servers, is_here) &&
         (std::ranges::any_of(servers, has_shm) || std::ranges::none_of(servers, has_tcp));
}

Result<ClientTransport> without_verbs(const TransportOptions& options, const Error& why_not) {
  if (is_for_shm(options)) {
    RKV_ASSIGN_OR_RETURN(auto shm, open_shm(options.shm));
    std::string reason = fmt::format(
        "{}, since the server is on this host and no RDMA device can "
        "be used ({})",
        shm->describe(), to_string(why_not));
    return ClientTransport{.transport = std::move(shm), .reason = std::move(reason)};
  }
  RKV_ASSIGN_OR_RETURN(auto tcp, open_tcp());
  std::string reason = fmt::format("{}, since no RDMA device reaches {} ({})", tcp->describe(),
                                   options.verbs.address, to_string(why_not));
  return ClientTransport{.transport = std::move(tcp), .reason = std::move(reason)};
}

// Clients of this host do without it if it cannot be opened.
void add_shm(const ShmOptions& options, ServerTransports& out) {
  auto shm = open_shm(options);
  if (!shm) {
    out.reason += fmt::format("; no shared memory: {}", to_string(shm.error()));
    return;
  }
  out.shm = std::move(*shm);
  out.reason += fmt::format(", and {} for clients on this host", out.shm->describe());
}

}  // namespace

const char* to_string(TransportKind kind) {
  switch (kind) {
    case TransportKind::kAuto:
      return "auto";
    case TransportKind::kVerbs:
      return "verbs";
    case TransportKind::kShm:
      return "shm";
    case TransportKind::kTcp:
      return "tcp";
  }
  return "?";
}

std::optional<TransportKind> parse_transport_kind(std::string_view text) {
  for (const auto kind :
       {TransportKind::kAuto, TransportKind::kVerbs, TransportKind::kShm, TransportKind::kTcp}) {
    if (text == to_string(kind)) return kind;
  }
  return std::nullopt;
}

Result<ClientTransport> choose_for_client(const TransportOptions& options) {
  if (options.kind == TransportKind::kShm) return opened_as_asked(open_shm(options.shm));
  if (options.kind == TransportKind::kTcp) return opened_as_asked(open_tcp());
  auto verbs = open_verbs(options.verbs);
  if (options.kind == TransportKind::kVerbs) return opened_as_asked(std::move(verbs));
  if (!verbs && may_fall_back(options)) return without_verbs(options, verbs.error());
  if (!verbs) return std::unexpected(verbs.error());
  std::string reason =
      fmt::format("{}, which reaches {}", (*verbs)->describe(), options.verbs.address);
  return ClientTransport{.transport = std::move(*verbs), .reason = std::move(reason)};
}

Result<ServerTransports> choose_for_server(const TransportOptions& options) {
  ServerTransports out;
  if (options.kind == TransportKind::kShm) {
    RKV_ASSIGN_OR_RETURN(out.shm, open_shm(options.shm));
    out.reason = as_asked(*out.shm);
    return out;
  }
  if (options.kind == TransportKind::kTcp) {
    RKV_ASSIGN_OR_RETURN(out.tcp, open_tcp());
    out.reason = as_asked(*out.tcp);
    return out;
  }
  auto verbs = open_verbs(options.verbs);
  if (verbs) {
    out.verbs = std::move(*verbs);
    out.reopen_verbs = [asked = options.verbs] { return open_verbs(asked); };
    out.reason = out.verbs->describe();
    if (options.kind == TransportKind::kAuto) add_shm(options.shm, out);
    return out;
  }
  if (!may_fall_back(options)) return std::unexpected(verbs.error());
  RKV_ASSIGN_OR_RETURN(out.tcp, open_tcp());
  out.reason = fmt::format("{}, since no RDMA device can be used ({})", out.tcp->describe(),
                           to_string(verbs.error()));
  add_shm(options.shm, out);
  return out;
}

}  // namespace rkv::rdma
