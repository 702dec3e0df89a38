#include "rdma/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "rkv/rdma/address.h"

namespace rkv::rdma {
namespace {

// Whether `auto` may use shared memory instead of verbs.
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

}  // namespace

const char* to_string(TransportKind kind) {
  switch (kind) {
    case TransportKind::kAuto:
      return "auto";
    case TransportKind::kVerbs:
      return "verbs";
    case TransportKind::kShm:
      return "shm";
  }
  return "?";
}

std::optional<TransportKind> parse_transport_kind(std::string_view text) {
  for (const auto kind : {TransportKind::kAuto, TransportKind::kVerbs, TransportKind::kShm}) {
    if (text == to_string(kind)) return kind;
  }
  return std::nullopt;
}

Result<ClientTransport> choose_for_client(const TransportOptions& options) {
  if (options.kind == TransportKind::kShm) {
    RKV_ASSIGN_OR_RETURN(auto shm, open_shm(options.shm));
    std::string reason = as_asked(*shm);
    return ClientTransport{.transport = std::move(shm), .reason = std::move(reason)};
  }
  const SteadyClock clock;
  const Deadline deadline = Deadline::after_ms(clock, options.verbs.find_ms);
  auto verbs = open_verbs(options.verbs);
  if (verbs) {
    std::string reason =
        options.kind == TransportKind::kVerbs
            ? as_asked(**verbs)
            : fmt::format("{}, which reaches {}", (*verbs)->describe(), options.verbs.address);
    return ClientTransport{.transport = std::move(*verbs), .reason = std::move(reason)};
  }
  // Shared memory cannot reach a server on another host: then the error is the missing device.
  if (!may_fall_back(options) || !is_on_this_host(options.verbs.address, deadline)) {
    return std::unexpected(verbs.error());
  }
  RKV_ASSIGN_OR_RETURN(auto shm, open_shm(options.shm));
  std::string reason = fmt::format(
      "{}, since the server is on this host and no RDMA device can "
      "be used ({})",
      shm->describe(), to_string(verbs.error()));
  return ClientTransport{.transport = std::move(shm), .reason = std::move(reason)};
}

Result<ServerTransports> choose_for_server(const TransportOptions& options) {
  ServerTransports out;
  if (options.kind == TransportKind::kShm) {
    RKV_ASSIGN_OR_RETURN(out.shm, open_shm(options.shm));
    out.reason = as_asked(*out.shm);
    return out;
  }
  auto verbs = open_verbs(options.verbs);
  if (verbs) {
    out.verbs = std::move(*verbs);
    out.reopen_verbs = [asked = options.verbs] { return open_verbs(asked); };
    out.reason = out.verbs->describe();
    if (options.kind == TransportKind::kVerbs) return out;
    auto shm = open_shm(options.shm);
    if (shm) {
      out.shm = std::move(*shm);
      out.reason += fmt::format(", and {} for clients on this host", out.shm->describe());
    } else {
      out.reason += fmt::format("; no shared memory: {}", to_string(shm.error()));
    }
    return out;
  }
  if (!may_fall_back(options)) return std::unexpected(verbs.error());
  RKV_ASSIGN_OR_RETURN(out.shm, open_shm(options.shm));
  out.reason = fmt::format(
      "{}, for clients on this host only, since no RDMA device can be used "
      "({})",
      out.shm->describe(), to_string(verbs.error()));
  return out;
}

}  // namespace rkv::rdma
